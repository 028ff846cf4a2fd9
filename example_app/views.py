"""The pages: upload a file, see what became of it, retry what died."""

from __future__ import annotations

import csv
import io
import typing as t
import uuid
from datetime import UTC, datetime

from flask import Blueprint, abort, redirect, render_template, request, url_for

from flask_henri_jobs.errors import JobBusy, UnknownJob

from .extensions import jobs
from .places import COLUMNS, BadFile, rows_of
from .tasks import import_rows, report_import

if t.TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

    from flask_henri_jobs import Job

views = Blueprint("views", __name__)


@views.get("/")
def index() -> str:
    """Show the form and the imports, the latest first."""
    return _front_page()


@views.post("/imports")
def upload() -> ResponseReturnValue:
    """Take a file, and enqueue a batch of jobs, one for each chunk of its rows."""
    file, size = request.files.get("file"), request.form.get("rows_per_job", 250, type=int)
    if not file or not 1 <= size <= 1000:
        return _front_page("Choose a file, and 1 to 1000 rows for a job."), 400
    try:
        rows = rows_of(file.read())
    except BadFile as error:
        return _front_page(str(error)), 400
    import_id = uuid.uuid4().hex
    now = datetime.now(UTC)
    record = {"_id": import_id, "file": file.filename, "rows": len(rows), "uploaded_at": now}
    jobs.database["imports"].insert_one(record)
    with jobs.batch(
        callback=report_import, callback_args={"import_id": import_id}, name=file.filename
    ) as batch:
        enqueued = batch.add_many(
            import_rows,
            (
                {"import_id": import_id, "first_row": at + 1, "rows": rows[at : at + size]}
                for at in range(0, len(rows), size)
            ),
        )
    ids = [job.id for job in enqueued]
    jobs.database["imports"].update_one({"_id": import_id}, {"$set": {"jobs": ids}})
    return redirect(url_for(".show", import_id=import_id), 303)


@views.get("/imports/<import_id>")
def show(import_id: str) -> ResponseReturnValue:
    """Show an import: its jobs with their states, and the rows that were rejected."""
    return render_template("import.html", **_account_of(import_id))


@views.get("/imports/<import_id>.json")
def account(import_id: str) -> ResponseReturnValue:
    """Tell a program the same."""
    return _account_of(import_id)


@views.get("/imports/<import_id>/places.csv")
def places(import_id: str) -> ResponseReturnValue:
    """Give back what was stored."""
    table = io.StringIO()
    writer = csv.DictWriter(table, [*COLUMNS, "square"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(jobs.database["places"].find({"import_id": import_id}, sort=[("_id", 1)]))
    return table.getvalue(), {"Content-Type": "text/csv; charset=utf-8"}


@views.post("/imports/<import_id>/jobs/<job_id>/retry")
def retry(import_id: str, job_id: str) -> ResponseReturnValue:
    """Have a job that died performed again."""
    if job_id not in _import(import_id).get("jobs", []):
        abort(404)
    try:
        jobs.retry(job_id)
    except (JobBusy, UnknownJob) as error:
        abort(409, str(error))
    return redirect(url_for(".show", import_id=import_id), 303)


def _front_page(problem: str = "") -> str:
    imports = jobs.database["imports"].find(sort=[("uploaded_at", -1)], limit=50)
    return render_template("index.html", imports=list(imports), columns=COLUMNS, problem=problem)


def _account_of(import_id: str) -> dict[str, t.Any]:
    found = [jobs.get(job_id) for job_id in _import(import_id).get("jobs", [])]
    # Read after the jobs: the report of a job that is done is in it for certain.
    record = _import(import_id)
    reports = record.get("reports", {}).values()
    return {
        "id": import_id,
        "file": record["file"],
        "rows": record["rows"],
        "stored": sum(report["stored"] for report in reports),
        "rejected": sorted(
            (bad for report in reports for bad in report["rejected"]), key=lambda bad: bad["row"]
        ),
        "jobs": [_plain(job) for job in found if job],
        "report": record.get("report"),
    }


def _plain(job: Job) -> dict[str, t.Any]:
    told = [
        *("id", "state", "attempts", "max_attempts"),
        *("error", "dead_reason", "history", "progress"),
    ]
    plain = job.to_dict()
    return {"first_row": plain["args"]["first_row"], **{name: plain[name] for name in told}}


def _import(import_id: str) -> dict[str, t.Any]:
    return jobs.database["imports"].find_one({"_id": import_id}) or abort(404)
