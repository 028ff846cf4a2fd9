"""What a command that cannot do as asked says, and the code it exits with.

0 is done; 1, the answer is no; 2, it was asked in the wrong way; 3, the database is out of reach.
"""

from __future__ import annotations

import contextlib
import re
import typing as t

import click

from ..errors import HenriJobsError, InvalidFilter, StoreUnavailable, Verdict
from ..outcome import Failure
from ..store.connection import DriverError
from ..uri import mask_uri
from .output import tell, visible

if t.TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_URI = re.compile(r"mongodb(?:\+srv)?://\S+")


class Told(click.ClickException):
    """Ends a command with a message in place of a traceback."""

    def __init__(self, message: str) -> None:
        lines = _URI.sub(lambda found: mask_uri(found[0]), message).splitlines()
        super().__init__("\n".join(map(visible, lines)))


class Refused(Told):
    """The answer is no: an unknown id, a job that runs, a bad setting."""

    exit_code = 1


class Misused(Told):
    """The command was called in a way that has no meaning."""

    exit_code = 2


class OutOfReach(Told):
    """The database does not answer, or does not let us in."""

    exit_code = 3


@contextlib.contextmanager
def telling_failures() -> Iterator[None]:
    """Turn the package's errors into what a command says, and its exit code."""
    try:
        yield
    except StoreUnavailable as error:
        raise OutOfReach(str(error)) from error
    except InvalidFilter as error:
        raise Misused(str(error)) from error
    except HenriJobsError as error:
        raise Refused(str(error)) from error
    except DriverError as error:
        raise Refused(f"The database refused: {str(error).split(', full error')[0]}") from error


class TaskFailures:
    """Tells of what a task raises within the block, with the frames that are the task's own.

    Whatever it is, it is the task's failure and no fault of the command's; Ctrl-C is neither.
    """

    def __init__(self, task: str) -> None:
        self._task = task

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, raised: BaseException | None, _traceback: object) -> None:
        if raised is None or isinstance(raised, KeyboardInterrupt | HenriJobsError):
            return
        failure = Failure.of(raised.with_traceback(_below_ours(raised.__traceback__)))
        if isinstance(raised, Verdict):
            verdict = type(raised).__name__
            raise Refused(f"The task {self._task} raised {verdict}({raised}).") from raised
        tell(failure.stack or "")
        raise Refused(f"The task {self._task} raised {failure.message}") from raised


def _below_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Return what of a traceback lies below the frames of this package."""
    while traceback is not None and _is_ours(traceback.tb_frame.f_globals.get("__name__", "")):
        traceback = traceback.tb_next
    return traceback


def _is_ours(module: str) -> bool:
    return module.startswith(__name__.partition(".")[0] + ".")
