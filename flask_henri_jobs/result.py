"""What a job keeps of what its task returned."""

from __future__ import annotations

import contextlib
import typing as t

from .codec import encode
from .errors import InvalidArguments

MOST_RESULT_BYTES = 256 * 1024


class Result(t.NamedTuple):
    """What is stored of what a task returned.

    :param text: It, encoded; None where there is nothing to store.
    :param problem: Why it is not stored, although the task wants it to be.
    """

    text: str | None = None
    problem: str | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields of the job that say so; each is absent when unused."""
        fields = {"result": self.text, "result_error": self.problem}
        return {name: value for name, value in fields.items() if value is not None}


NO_RESULT = Result()


def result_of(returned: object) -> Result:
    """Return what is stored of a result; where it cannot be, why.

    It never raises: the task has done its work, and is not to do it again for its result's sake.
    """
    # Anything may come of a value's own code, such as the time zone of a datetime.
    with contextlib.suppress(BaseException):
        try:
            return Result(text=encode(returned, "result", MOST_RESULT_BYTES))
        except InvalidArguments as error:
            return Result(problem=error.message)
    return Result(problem=f"result is a {type(returned).__name__}, and encoding it raised.")
