"""How the jobs of an application are tested."""

from __future__ import annotations

import io
import typing as t

from example_app.extensions import jobs
from example_app.tasks import import_rows

if t.TYPE_CHECKING:
    from flask import Flask

    from flask_henri_jobs.testing import FrozenClock, ManualJobs

HEADER = "iata,name,city,state,country,latitude,longitude\n"
OSLO = ["OSL", "Gardermoen", "Oslo", "", "Norway", "60.19", "11.1"]
BUSY = ["I69", "Clermont County", "Batavia", "OH", "USA", "39.08", "-84.21"]


def test_upload_enqueues_a_job_for_each_chunk(app: Flask, jobs_manual: ManualJobs) -> None:
    """Three rows, two for a job, are two jobs."""
    rows = "".join(",".join(OSLO) + "\n" for _ in range(3))
    form = {"file": (io.BytesIO((HEADER + rows).encode()), "a.csv"), "rows_per_job": "2"}

    app.test_client().post("/imports", data=form)

    first, second = jobs_manual.assert_enqueued(import_rows, count=2)
    assert first.args["rows"] == [OSLO, OSLO]
    assert (second.args["first_row"], second.args["rows"]) == (3, [OSLO])


def test_place_is_stored(app: Flask, jobs_manual: ManualJobs) -> None:
    """A performed job has stored its places."""
    with app.app_context():
        job = import_rows.delay("some-import", 1, [OSLO])

        assert jobs_manual.drain().succeeded == 1
        progress = job.refresh().progress
        assert progress
        assert progress["done"] == 1
        assert jobs.database["places"].find_one({"_id": "OSL"})


def test_busy_geocoder_is_asked_again(
    app: Flask, jobs_manual: ManualJobs, jobs_clock: FrozenClock
) -> None:
    """A job that the geocoder was too busy for succeeds with its second attempt."""
    with app.app_context():
        import_rows.delay("some-import", 1, [BUSY])

    assert jobs_manual.drain().retried == 1
    jobs_clock.advance("1s")
    assert jobs_manual.drain().succeeded == 1


def test_broken_rows_are_buried(app: Flask, jobs_manual: ManualJobs) -> None:
    """A row with a cell too few is no use to retry."""
    with app.app_context():
        job = import_rows.delay("some-import", 1, [OSLO[:-1]])

        assert jobs_manual.drain().died == 1
        assert job.refresh().dead_reason == "discarded"
        assert job.error == "Row 1 has 6 cells instead of 7."


def test_report_is_written_after_the_last_job(app: Flask, jobs_manual: ManualJobs) -> None:
    """A job that died is in the report, which is written once."""
    rows = [",".join(OSLO), ",".join(OSLO[:-1]), "," + ",".join(OSLO[1:])]
    file = io.BytesIO((HEADER + "\n".join(rows)).encode())
    client = app.test_client()
    page = client.post("/imports", data={"file": (file, "a.csv"), "rows_per_job": "1"}).location
    assert "It ended" not in client.get(page).text

    drained = jobs_manual.drain()

    assert (drained.succeeded, drained.died) == (3, 1)
    report = {"jobs": 3, "failed": 1, "stored": 1, "rejected": 1}
    assert client.get(f"{page}.json").get_json()["report"] == report
    assert "2 of 3 jobs done and 1 dead" in client.get(page).text
