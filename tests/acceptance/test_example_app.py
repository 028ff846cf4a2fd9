"""The example application's pages, and what its jobs do, on a server of the tests' own."""

from __future__ import annotations

import io
import re
import typing as t

import pytest

from example_app import create_app
from example_app.extensions import jobs
from example_app.geocoder import GeocoderBusy, square_of

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from flask.testing import FlaskClient
    from werkzeug.test import TestResponse

HEADER = "iata,name,city,state,country,latitude,longitude\n"
GREENWICH = "GRN,Greenwich,London,,UK,51.48,0.0\n"
SHIFTED = "QX1,Field, the Western,Elsewhere,ZZ,Nowhere,10.5,20.25\n"


@pytest.fixture
def app(mongo_uri: str, database_name: str) -> Iterator[Flask]:
    app = create_app(HENRI_JOBS_URI=mongo_uri, HENRI_JOBS_DATABASE=database_name, TESTING=True)
    yield app
    jobs.state_of(app).close()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def upload(client: FlaskClient) -> Callable[[str], TestResponse]:
    def upload(text: str, rows_per_job: object = 250) -> TestResponse:
        form = {"file": (io.BytesIO(text.encode()), "some.csv"), "rows_per_job": str(rows_per_job)}
        return client.post("/imports", data=form)

    return upload


def work(app: Flask) -> None:
    with app.app_context():
        jobs.run_worker(once=True)


def test_upload_is_performed_by_the_worker(
    app: Flask, client: FlaskClient, upload: Callable[[str], TestResponse]
) -> None:
    """An upload leads to its page, whose job is pending, and done once a worker has run."""
    page = upload(HEADER + GREENWICH).location
    before = client.get(page).text

    work(app)

    assert '<td class="pending">pending</td>' in before
    assert '<meta http-equiv="refresh"' in before
    after = client.get(page).text
    assert '<td class="done">done</td>' in after
    assert "It ended with 1 of 1 jobs done and 0 dead" in after
    assert '<meta http-equiv="refresh"' not in after
    table = client.get(f"{page}/places.csv").text.splitlines()
    assert table[1:] == ["GRN,Greenwich,London,,UK,51.48,0.0,JO01"]
    assert "some.csv" in client.get("/").text


def test_job_that_died_is_retried_by_its_button(
    app: Flask, client: FlaskClient, upload: Callable[[str], TestResponse]
) -> None:
    """A chunk that nobody can read is dead with its reason; the button has it performed again."""
    page = upload(HEADER + SHIFTED).location
    work(app)
    dead = client.get(page).text

    button = re.search(r'<form action="(.*/retry)"', dead)
    assert button
    answer = client.post(button[1])

    assert "dead (discarded)" in dead
    assert "attempt 1: Row 1 has 8 cells instead of 7." in dead
    assert answer.location == page
    assert '<td class="pending">pending</td>' in client.get(page).text


def test_chunk_that_is_performed_twice_stores_once(
    app: Flask, client: FlaskClient, upload: Callable[[str], TestResponse]
) -> None:
    """Q4: a job may be performed again after its end, and its places are replaced, not added."""
    page = upload(HEADER + GREENWICH + "BAD,,,,,0,0\n").location
    work(app)
    first = client.get(f"{page}.json").json
    assert first
    client.post(f"{page}/jobs/{first['jobs'][0]['id']}/retry")

    work(app)

    again = client.get(f"{page}.json").json
    assert again
    assert again["jobs"][0]["state"] == "done"
    for what in ("stored", "rejected"):
        assert again[what] == first[what]
    assert again["rejected"] == [{"row": 2, "reason": "name is empty"}]


@pytest.mark.parametrize(
    ("text", "rows_per_job", "problem"),
    [
        ("", 250, "That is not a CSV file in UTF-8 with a header."),
        ("name,iata\n", 250, "The header is name, iata; it has to be iata, name, city"),
        (HEADER, 0, "Choose a file, and 1 to 1000 rows for a job."),
        (HEADER, "many", None),
    ],
)
def test_bad_upload_is_refused_on_the_form(
    upload: Callable[..., TestResponse], text: str, rows_per_job: object, problem: str | None
) -> None:
    """A file that is no table of places enqueues nothing, and the form says why."""
    answer = upload(text, rows_per_job)

    if problem is None:
        # What is no number is the default, as when the field is left out.
        assert answer.status_code == 303
    else:
        assert answer.status_code == 400
        assert problem in answer.text


def test_strangers_are_not_found(
    client: FlaskClient, upload: Callable[[str], TestResponse]
) -> None:
    """An import that is not there, and a job of another import, are 404."""
    page, other = upload(HEADER + GREENWICH).location, upload(HEADER + GREENWICH).location
    account = client.get(f"{other}.json").json
    assert account

    assert client.get("/imports/none").status_code == 404
    assert client.post(f"{page}/jobs/{account['jobs'][0]['id']}/retry").status_code == 404


@pytest.mark.parametrize(
    ("latitude", "longitude", "square"),
    [(51.48, 0.0, "JO01"), (-90, -180, "AA00"), (90, 180, "RR99"), (38.9, -77.0, "FM18")],
)
def test_geocoder_knows_the_squares(latitude: float, longitude: float, square: str) -> None:
    """The stand-in for a service answers rightly, at the edges of the map too."""
    assert square_of("GRN", latitude, longitude, attempt=1) == square


def test_geocoder_is_busy_once() -> None:
    """The stand-in refuses the first attempt at some places, and no later one."""
    with pytest.raises(GeocoderBusy, match="MIT"):
        square_of("MIT", 0, 0, attempt=1)
    assert square_of("MIT", 0, 0, attempt=2) == "JJ00"
