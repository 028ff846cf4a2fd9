"""Show the example at work, and hold it to what the files say.

It starts the web process and the worker, uploads two files, waits, and compares what came of them
with its own reading of the files. It speaks HTTP and knows neither the application nor the
extension: whatever they get wrong it would see. Any difference ends it with exit 1.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.error
import urllib.request
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path

from vega_datasets import local_data

PATIENCE = 60.0
"""Seconds that the processes have to start, and then again to perform every job."""

T = t.TypeVar("T")
Process: t.TypeAlias = "subprocess.Popen[bytes]"

AIRPORTS = Path(local_data.airports.filepath)
BROKEN = Path(__file__).with_name("broken.csv")


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run the demonstration. Return 0 where all is as the files say."""
    options = _options(arguments)
    # A stop by SIGTERM ends the processes below, as Ctrl-C does.
    # Said for both: a shell that starts the demo in the background has Ctrl-C ignored.
    for stopping in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stopping, signal.default_int_handler)
    with tempfile.TemporaryFile() as log:
        try:
            faults = perform(options, sys.stderr if options.serve else log)
        except KeyboardInterrupt:
            return 0 if options.serve else 130
        except OSError as error:
            faults = [f"{error} Its log ends:\n{tail(log)}"]
    for fault in faults:
        print(f"WRONG: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _options(arguments: t.Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m example_app.demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="go on serving afterwards")
    parser.add_argument("--instance", help="where the database keeps its data")
    parser.add_argument(
        "--tamper",
        type=int,
        metavar="N",
        help="flip a bit of byte N of the airports on their way, to see that it is noticed",
    )
    return parser.parse_args(arguments)


def perform(options: argparse.Namespace, log: t.IO[t.Any]) -> list[str]:
    """Run both processes, and show what they do. Return what went wrong."""
    port = free_port()
    with (
        running(options.instance, log, "run", "--port", str(port)) as web,
        running(options.instance, log, "jobs", "worker") as worker,
    ):
        site = Site(f"http://127.0.0.1:{port}", web, worker)
        faults = demonstrate(site, options.tamper)
        if options.serve and not faults:
            print(f"\nServing on {site.url} until Ctrl-C.", flush=True)
            web.wait()
        return faults


def demonstrate(site: Site, tamper: int | None = None) -> list[str]:
    """Upload the files, tell what came of them, and return what differs from the files."""
    site.wait_until_it_serves()
    content = AIRPORTS.read_bytes()
    sent = flipped(content, tamper) if tamper is not None else content
    uploads = [
        (site.upload("airports.csv", sent, rows_per_job=250), expected(content, 250)),
        (site.upload("broken.csv", BROKEN.read_bytes(), 4), expected(BROKEN.read_bytes(), 4)),
    ]
    faults = []
    for page, wanted in uploads:
        account = site.wait_until_ended(page)
        tell(account)
        faults += differences(account, site.read(f"{page}/places.csv").decode(), wanted)
    if not faults:
        print("\nAll of it is as the files say.", flush=True)
    return faults


@dataclass(frozen=True)
class Expected:
    """What has to come of a file.

    :param retried: The first rows of the jobs that need a second attempt.
    :param buried: The first rows of the jobs that die.
    """

    jobs: int
    rejected: list[int]
    retried: list[int]
    buried: list[int]
    places: dict[str, list[str]]


def expected(content: bytes, rows_per_job: int) -> Expected:
    """Work out what has to come of a file, in the plainest way there is."""
    header, *rows = csv.reader(io.StringIO(content.decode(), newline=""))
    wanted = Expected(-(-len(rows) // rows_per_job), [], [], [], {})
    for start in range(0, len(rows), rows_per_job):
        chunk = list(enumerate(rows[start : start + rows_per_job], start + 1))
        if any(len(cells) != len(header) for _, cells in chunk):
            wanted.buried.append(start + 1)
            continue
        good = {number: cells for number, cells in chunk if is_place(cells)}
        wanted.rejected.extend(number for number, _ in chunk if number not in good)
        wanted.places.update((cells[0], plain(cells)) for cells in good.values())
        if any(zlib.crc32(cells[0].encode()) % 500 == 0 for cells in good.values()):
            wanted.retried.append(start + 1)
    return wanted


def is_place(cells: list[str]) -> bool:
    """Whether a row has a code, a name, a country, and coordinates on the globe."""
    code, name, _, _, country, latitude, longitude = cells
    try:
        on_the_globe = abs(float(latitude)) <= 90 and abs(float(longitude)) <= 180
    except ValueError:
        return False
    return on_the_globe and bool(code and name and country)


def plain(cells: list[str]) -> list[str]:
    """Return the cells of a place with its coordinates in one spelling."""
    return [*cells[:5], *(repr(float(cell)) for cell in cells[5:7])]


def differences(account: dict[str, t.Any], places: str, wanted: Expected) -> list[str]:
    """Return what is not as it should be, a sentence each."""
    jobs = account["jobs"]
    stored = {cells[0]: plain(cells) for cells in list(csv.reader(io.StringIO(places)))[1:]}
    compared: dict[str, tuple[t.Any, t.Any]] = {
        "jobs enqueued": (len(jobs), wanted.jobs),
        "jobs performed": (count(jobs, "done"), wanted.jobs - len(wanted.buried)),
        "jobs buried": (rows_from(jobs, lambda job: job["state"] == "dead"), wanted.buried),
        "jobs retried": (rows_from(jobs, lambda job: job["attempts"] > 1), wanted.retried),
        "rows stored": (account["stored"], len(wanted.places)),
        "its report": (account["report"], report_of(wanted)),
        "rows rejected": ([bad["row"] for bad in account["rejected"]], wanted.rejected),
    }
    faults = [
        f"{account['file']}: {what}: {found}, and by the file it is {right}."
        for what, (found, right) in compared.items()
        if found != right
    ]
    for code in sorted(stored.keys() | wanted.places.keys()):
        if stored.get(code) != wanted.places.get(code):
            found, right = stored.get(code), wanted.places.get(code)
            faults.append(f"{account['file']}: stored is {found}, and in the file is {right}.")
    return faults


def report_of(wanted: Expected) -> dict[str, int]:
    """Return the counts that the import's report has to have."""
    return {
        "jobs": wanted.jobs,
        "failed": len(wanted.buried),
        "stored": len(wanted.places),
        "rejected": len(wanted.rejected),
    }


def tell(account: dict[str, t.Any]) -> None:
    """Print what became of an upload, and why."""
    jobs, report = account["jobs"], account["report"]
    print(f"\n{account['file']}: {account['rows']} rows")
    print(f"  enqueued   {len(jobs):5} jobs")
    print(f"  performed  {count(jobs, 'done'):5} jobs, {account['stored']} places stored")
    retried = [job for job in jobs if job["attempts"] > 1]
    print(f"  retried    {len(retried):5} jobs")
    for job in retried:
        print(f"             rows from {job['first_row']}: {job['history'][0]['message']}")
    buried = [job for job in jobs if job["state"] == "dead"]
    print(f"  buried     {len(buried):5} jobs")
    for job in buried:
        print(f"             rows from {job['first_row']} ({job['dead_reason']}): {job['error']}")
    print(f"  rejected   {len(account['rejected']):5} rows")
    for bad in account["rejected"]:
        print(f"             row {bad['row']}: {bad['reason']}")
    print(f"  report     {report['jobs']:5} jobs ended, {report['failed']} of them dead")
    sys.stdout.flush()


def count(jobs: list[dict[str, t.Any]], state: str) -> int:
    """Return how many jobs are in a state."""
    return sum(job["state"] == state for job in jobs)


def rows_from(
    jobs: list[dict[str, t.Any]], which: t.Callable[[dict[str, t.Any]], bool]
) -> list[int]:
    """Return the first rows of some of the jobs."""
    return [job["first_row"] for job in jobs if which(job)]


def flipped(content: bytes, place: int) -> bytes:
    """Return the content with one bit of one byte changed: a digit stays a digit."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@dataclass(frozen=True)
class Site:
    """The running application, by HTTP."""

    url: str
    web: Process
    worker: Process

    def wait_until_it_serves(self) -> None:
        """Return once the front page answers."""
        awaited("The web process", self.web, self._front_page)

    def upload(self, name: str, content: bytes, rows_per_job: int) -> str:
        """Upload a file as a browser does. Return the path of the page about it."""
        mark = uuid.uuid4().hex
        size = f'--{mark}\r\nContent-Disposition: form-data; name="rows_per_job"\r\n\r\n'
        file = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = f"{size}{rows_per_job}\r\n{file}".encode() + content + f"\r\n--{mark}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        request = urllib.request.Request(f"{self.url}/imports", body, kind)
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return t.cast(str, response.url).removeprefix(self.url)

    def wait_until_ended(self, page: str) -> dict[str, t.Any]:
        """Return the account of an upload once its report is written, after the last job."""
        return awaited("The worker", self.worker, lambda: self._account_if_ended(page))

    def read(self, path: str) -> bytes:
        """Return what is served at a path."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE) as response:
            return t.cast(bytes, response.read())

    def _front_page(self) -> bytes | None:
        try:
            return self.read("/")
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            return None  # It does not listen yet.

    def _account_if_ended(self, page: str) -> dict[str, t.Any] | None:
        account: dict[str, t.Any] = json.loads(self.read(f"{page}.json"))
        return account if account["report"] else None


def awaited(what: str, process: Process, look: t.Callable[[], T | None]) -> T:
    """Look ten times a second until there is something, and return it.

    :raises OSError: The process has ended, or the patience is over.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        if process.poll() is not None:
            raise ChildProcessError(f"{what} ended with exit {process.returncode}.")
        time.sleep(0.1)
    raise TimeoutError(f"{what} was not ready in {PATIENCE:.0f} s.")


@contextlib.contextmanager
def running(instance: str | None, log: t.IO[t.Any], *command: str) -> t.Iterator[Process]:
    """Run a ``flask`` command of the application, and end it afterwards."""
    app = f"example_app:create_app({instance!r})" if instance else "example_app"
    print(f"$ flask --app {app} {' '.join(command)}", flush=True)
    flask = [sys.executable, "-m", "flask", "--app", app, *command]
    process = subprocess.Popen(flask, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tail(log: t.IO[bytes]) -> str:
    """Return the last lines of a log."""
    log.seek(0)
    return b"".join(log.readlines()[-20:]).decode(errors="replace")


def free_port() -> int:
    """Return a loopback port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
