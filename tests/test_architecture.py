"""The layout, held by the machine: what may import what, and how large a thing may grow."""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

import pytest

if t.TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parent.parent / "flask_henri_jobs"

#: A file imports only from files above it. ``docs/explanation/layout.md`` says why.
LAYOUT = """
errors
log
signals
durations
checks
uri
ids
process_local
closing
clock
backoff
unfit
tags
codec
arguments
result
limit
pause
rate
queues
cron
clock_changes
schedule
redaction
job
readable
reason
schedule_entry
batch
outcome
progress
kept_lines
context
logs
tenant
setting_readers
settings
store.watcher
store.own_set
store.mongod
store.embedded
store.connection
store.documents
store.cancels
store.indexes
store.filters
store.wakeups
store.conflicts
store.transactions
store.inbox
store.inbox_in_transaction
store.permits
store.pauses
store.seen_slots
store.rates
store.candidates
store.suspects
store.waiting_keys
store.starts
store.wish
store.limited
store.spread
store.doubts
store.claims
store.leases
store.outcomes
store.job_transactions
store.schedules
store.runners
store.tail
store.waits
store.walks
store.lookup
store.batches
store.tallies
store.admin
store.figures
store.pruning
store.repairs
store
refused_options
options
unique
task
registry
enqueueing
declared
finishing
app_state
scheduling
building
cancelling
explaining
limit_status
batch_operations
operations
worker.loop
worker.alarm
worker.awaited
worker.marks
worker.recycling
worker.post
worker.telling
worker.holdings
worker.pace
worker.frame
worker.coroutines
worker.execution
worker.threads
worker.turnstile
worker.outcome_log
worker.committer
worker.aftermath
worker.attempts
worker.cancels
worker.keeper
worker.gate
worker.reporting
worker.transacting
worker.strangers
worker.appetite
worker.performer
worker.housekeeping
worker.declaring
worker.scheduling
worker.apart
worker.feeder
worker.machine
worker.roll
worker.runner
worker.os_signals
worker.losses
worker.children
worker.supervisor
worker
cli.output
cli.failures
cli.command
cli.options
cli.progress
cli.findings
cli.queue_findings
cli.seen
cli.worker
cli.runners
cli.jobs
cli.bulk
cli.schedules
cli.limits
cli.pauses
cli.system
cli.batches
cli
inline
extension
__init__
testing
pytest_plugin
""".split()

FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "core", "misc"}
FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


def imports_of(path: Path, *, at_top: bool = False) -> Iterator[str]:
    """Yield the modules of this package that a file imports at run time.

    :param at_top: Only what is imported with the file; otherwise anywhere in it.
    """
    tree = ast.parse(path.read_text())
    here = path.relative_to(PACKAGE).parts[:-1]
    for node in tree.body if at_top else at_run_time(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
            base = [part for part in base if part]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                if full in LAYOUT:
                    yield full
                elif base:
                    yield ".".join(base)


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from at_run_time(child)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_upwards_in_the_list(path: Path) -> None:
    """A file imports only from files above it in the list."""
    name = module_name(path)
    assert name in LAYOUT, f"{name} has no place in the list: add it, and say why in layout.md"
    place = LAYOUT.index(name)
    lower = [other for other in imports_of(path) if LAYOUT.index(other) >= place]
    # A command or ``run_worker`` may import the worker inside its body only; see the next test.
    assert not lower


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_worker_is_imported_inside_functions_only(path: Path) -> None:
    """The web process never loads the worker."""
    if "worker" in path.relative_to(PACKAGE).parts[:1]:
        pytest.skip("the worker itself")
    loaded = [name for name in imports_of(path, at_top=True) if name.split(".")[0] == "worker"]
    assert not loaded


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_sizes(path: Path) -> None:
    """No file above 400 lines, and no class above a dozen public methods, ``HenriJobs`` exempt."""
    assert path.stem not in FORBIDDEN_NAMES
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name not in {"HenriJobs", "Operations"}:
            # A property and its setter are one.
            public = {
                item.name
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                and not item.name.startswith("_")
            }
            assert len(public) <= 12, f"{node.name}: {public}"


def test_store_does_not_know_signals_or_tasks() -> None:
    """The store answers with what happened, and tells nobody."""
    for path in (PACKAGE / "store").rglob("*.py"):
        assert not {"signals", "task", "context"} & set(imports_of(path)), path.name


def test_few_wide_catches() -> None:
    """Exactly three kinds of place catch widely: an attempt, a round of a loop, a receiver.

    An attempt in three places: at the task, at its coroutine, which an event loop must not see
    raise, and at what was raised, which is the task's as well when it is asked what it is.
    """
    wide = [
        f"{module_name(path)}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or {"Exception", "BaseException", "caught"}
            & {ast.unparse(name).removeprefix("self._") for name in ast.walk(node.type)}
        )
    ]
    assert sorted(wide) == [
        "signals",
        "worker.coroutines",
        "worker.execution",
        "worker.execution",
        "worker.loop",
        "worker.telling",
    ]
