"""A page of the documentation: its blocks, and whether what a command says is what it shows."""

from __future__ import annotations

import re
import textwrap
import typing as t
from dataclasses import dataclass
from pathlib import Path

if t.TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(r"^<!-- (python|stop)(?:\n(.*?)^-->| -->)$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.DOTALL)

FILE_NAME = re.compile(
    r"^(?:#|//|\{#|<!--) *"
    r"((?:[\w.-]*/)*(?:[\w-]+\.\w+|Dockerfile|Procfile|Makefile))"
    r" *(?:#\}|-->)?$"
)
"""The first line of a block that is a file: a comment with its name, and nothing else."""

VARIES = {
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "<id>",
    r"[\w.-]+:\d+:[0-9a-f]{8}\b": "<runner>",
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?": "<moment>",
    r"\b(\d+(\.\d+)?(ms|min|s|m|h|d|w) ?)+ago\b|\bnow\b": "<ago>",
    r"\bin (\d+(\.\d+)?(ms|min|s|m|h|d|w) ?)+\b": "<soon>",
    r"\bafter \d+ms\b": "<after>",
}
"""What is another each time, and so is only compared in kind."""


@dataclass(frozen=True)
class Block:
    """A piece of a page that is run."""

    line: int
    kind: str
    """Its language; ``python`` also for what the reader does not see."""
    text: str
    not_run: str | None = None
    """Why it is not run, where the page says so."""

    @property
    def file_name(self) -> str | None:
        """The file that the block is, if it is one."""
        first = self.text.split("\n", 1)[0]
        named = FILE_NAME.match(first)
        return named[1].lstrip("/") if named and self.kind != "console" else None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order, but for those that Sphinx itself reads."""
    text = page.read_text()
    found = []
    for fence in FENCE.finditer(text):
        indent, _, kind, body = fence.groups()
        if kind.strip().startswith("{"):
            continue
        reason = NOT_RUN.search(text[: fence.start()])
        found.append(
            Block(
                line=text.count("\n", 0, fence.start(4)) + 1,
                kind=kind.strip(),
                text=textwrap.dedent(body) if indent else body,
                not_run=" ".join(reason[1].split()) if reason else None,
            )
        )
    for hidden in HIDDEN.finditer(text):
        line = text.count("\n", 0, hidden.start()) + 2
        found.append(Block(line=line, kind=hidden[1], text=hidden[2] or ""))
    return sorted(found, key=lambda block: block.line)


def is_project(blocks: Iterable[Block]) -> bool:
    """Return whether a page writes an application that a process can load."""
    return any(block.file_name == "app.py" for block in blocks)


@dataclass
class Command:
    """A line behind a prompt, and what the page shows below it."""

    line: int
    text: str
    shows: str = ""


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a ``console`` block."""
    commands: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            commands.append(Command(number, line.removeprefix("$ ")))
        elif commands and commands[-1].text.endswith("\\"):
            commands[-1].text = commands[-1].text[:-1] + line.removeprefix("> ").strip()
        elif commands:
            commands[-1].shows += f"{line}\n"
        else:
            raise ValueError(f"Line {number}: a console block begins with a command, '$ ...'.")
    return commands


def is_shown(shows: str, said: str, *, amidst: bool = False) -> bool:
    """Return whether a command said what the page shows, where ``...`` stands for anything.

    :param amidst: Something else may come before and after it.
    """
    want, got = _comparable(shows), _comparable(said)
    pattern = re.compile(".*".join(re.escape(part) for part in want.split("...")), re.DOTALL)
    return (pattern.search(got) if amidst else pattern.fullmatch(got)) is not None


def _comparable(text: str) -> str:
    for pattern, kind in VARIES.items():
        text = re.sub(pattern, kind, text)
    return " ".join(text.split())
