"""What is done in the background."""

from __future__ import annotations

import typing as t

from pymongo import ReplaceOne

from flask_henri_jobs import Discard, current_job

from .extensions import jobs
from .geocoder import square_of
from .places import COLUMNS, BadRow, place_of


@jobs.task(
    max_attempts=5,
    backoff={"base": "1s", "factor": 2},
    # The geocoder allows so many connections, from all workers together.
    concurrency={"limit": 4, "group": "geocoder"},
)
def import_rows(import_id: str, first_row: int, rows: list[list[str]]) -> None:
    """Store the places of some rows of a file, and report the rows that are none.

    A job may be performed twice, as after a crash. That does no harm here: places and report are
    replaced, not added.
    """
    places, rejected = [], []
    for number, cells in enumerate(rows, first_row):
        if len(cells) != len(COLUMNS):
            # Nobody can tell what is in which column: no attempt will make this better.
            raise Discard(f"Row {number} has {len(cells)} cells instead of {len(COLUMNS)}.")
        try:
            places.append(_located(place_of(cells)))
        except BadRow as error:
            rejected.append({"row": number, "reason": str(error)})
        current_job.set_progress(number - first_row + 1, len(rows))
    _store(import_id, places)
    report = {"stored": len(places), "rejected": rejected}
    jobs.database["imports"].update_one(
        {"_id": import_id}, {"$set": {f"reports.{first_row}": report}}
    )


@jobs.task
def report_import(batch: dict[str, t.Any], import_id: str) -> None:
    """Write the report of an import, when the last of its jobs has ended.

    It is performed once the batch is over, whatever became of its jobs, and is given their counts.
    """
    reports = _import(import_id).get("reports", {}).values()
    report = {
        "jobs": batch["total"],
        "failed": batch["failed"],
        "stored": sum(report["stored"] for report in reports),
        "rejected": sum(len(report["rejected"]) for report in reports),
    }
    jobs.database["imports"].update_one({"_id": import_id}, {"$set": {"report": report}})


def _import(import_id: str) -> dict[str, t.Any]:
    return jobs.database["imports"].find_one({"_id": import_id}) or {}


def _located(place: dict[str, t.Any]) -> dict[str, t.Any]:
    # GeocoderBusy is not caught: the queue performs the job again after its backoff.
    square = square_of(
        place["iata"], place["latitude"], place["longitude"], attempt=current_job.attempt
    )
    return {**place, "square": square}


def _store(import_id: str, places: list[dict[str, t.Any]]) -> None:
    if places:
        jobs.database["places"].bulk_write(
            [
                ReplaceOne({"_id": place["iata"]}, {**place, "import_id": import_id}, upsert=True)
                for place in places
            ],
            ordered=False,
        )
