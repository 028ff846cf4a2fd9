"""``docs/reference`` says what the code does: its tables hold what the modules hold."""

from __future__ import annotations

import ast
import inspect
import re
import typing as t
from pathlib import Path

import pytest
from blinker import NamedSignal

import flask_henri_jobs
from flask_henri_jobs import HenriJobs, Job, errors, signals
from flask_henri_jobs.job import Field
from flask_henri_jobs.options import EnqueueOptions, TaskOptions

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
API = (REFERENCE / "api.md").read_text()

RULES = re.compile(r" \([A-Z]\d+(, [A-Z]\d+)*\)")
"""Rule numbers, which stand in the code and not in what users read."""

DECLARED = re.compile(r"((?:#: .+\n)+)(\w+) = _signals\.signal\(\"([\w-]+)\"\)")

#: What ``HenriJobs`` has for its own parts, which users do not call.
FOR_ITS_PARTS = {"enqueue_many", "enqueue_task", "state", "state_of", "with_settings"}


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each table of a page, by the first word of its head."""
    found: dict[str, list[list[str]]] = {}
    for table in re.findall(r"(?:^\|.*\n?)+", (REFERENCE / page).read_text(), re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in table.splitlines()
        ]
        found.setdefault(head[0], []).extend(rows)
    return found


def as_told(text: str) -> str:
    """Return text of a docstring or comment as a page has it."""
    return RULES.sub("", " ".join(text.replace("#: ", "").split())).replace("``", "`")


def declared_signals() -> list[list[str]]:
    """Return for each signal its name, when, process, thread and arguments, from its comment."""
    rows = []
    for comment, name, wire_name in DECLARED.findall(Path(signals.__file__).read_text()):
        when, process, thread, arguments = re.fullmatch(
            r"(.+\.) ([^.;]+); ([^;]+); ([^;]+)\.", as_told(comment)
        ).groups()  # type: ignore[union-attr]
        assert getattr(signals, name).name == wire_name == name.replace("_", "-")
        rows.append([f"`{name}`", when, process, thread, arguments])
    return rows


def sent() -> list[tuple[str, set[str]]]:
    """Return each signal that is sent somewhere in the package, and with what."""
    found = []
    for path in Path(signals.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="emit" | "emit_safely") | ast.Attribute(attr="tell"),
                    args=[ast.Attribute(value=ast.Name(id="signals"), attr=name), *_],
                    keywords=keywords,
                ):
                    facts = {keyword.arg for keyword in keywords}
                    # ``**failed`` is spelled out where it is made.
                    found.append((name, {"job", "error", "attempt"} if None in facts else facts))
    return t.cast("list[tuple[str, set[str]]]", found)


def test_signals() -> None:
    """Every signal has a row: when it is sent, in which process and thread, and with what."""
    every = [f"`{name}`" for name, one in vars(signals).items() if isinstance(one, NamedSignal)]

    assert tables("signals.md")["Signal"] == declared_signals()
    assert [row[0] for row in declared_signals()] == every


def test_signals_are_sent_with_what_is_told() -> None:
    """Whatever sends a signal passes the arguments that the page promises, and no others."""
    told = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[4])) for row in declared_signals()}

    assert {"job_enqueued", "job_started", "job_died"} <= {name for name, _ in sent()}
    assert [(name, told[name]) for name, _ in sent()] == sent()
    explained = {row[0].strip("`") for row in tables("signals.md")["Argument"]}
    assert explained == set().union(*told.values())


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("Error", errors.HenriJobsError),
        ("Interruption", errors.Interruption),
        ("Verdict", errors.Verdict),
    ],
)
def test_errors(head: str, base: type[BaseException]) -> None:
    """Every error has a row with its code, and says there what its docstring says."""
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, base) and one is not base
    ]
    rows = [
        [
            f"`{one.__name__}`",
            *([f"`{code}`"] if (code := getattr(one, "code", None)) else []),
            as_told((inspect.getdoc(one) or "").split("\n\n")[0]),
        ]
        for one in classes
    ]

    assert tables("errors.md")[head] == rows


def test_codes_are_told_apart() -> None:
    """No two errors have one code, and each error has one of its own."""
    codes = [row[1] for head in ("Error", "Interruption") for row in tables("errors.md")[head]]

    assert len(set(codes)) == len(codes)
    assert "`HENRI_JOBS_ERROR`" not in codes


def test_importable_names() -> None:
    """The page lists what can be imported from the package."""
    listed = re.findall(r"`(\w+)`", API.split("## Importable names")[1])

    assert sorted(listed) == sorted(flask_henri_jobs.__all__)


def test_every_call() -> None:
    """Each public name of ``HenriJobs`` is on the page, and the page has no others."""
    public = {name for name in dir(HenriJobs) if not name.startswith("_")} | {"tasks"}

    assert set(re.findall(r"`@?jobs\.(\w+)", API)) == public - FOR_ITS_PARTS


def test_options() -> None:
    """Each option of a task and of an enqueue has a row, in their order."""
    rows = [row[0].strip("`") for row in tables("api.md")["Option"]]

    assert rows == [
        *inspect.get_annotations(TaskOptions),
        *inspect.get_annotations(EnqueueOptions),
    ]


def test_attributes_of_a_job() -> None:
    """Each attribute of a job is in the table, but for the token that fences its writes."""
    told = " ".join(row[0] for row in tables("api.md")["Attribute"])
    stored = {name for name, one in vars(Job).items() if isinstance(one, Field)}

    assert set(re.findall(r"`(\w+)`", told)) == stored - {"claim_token"} | {
        *("created", "dead_reason"),
    }
