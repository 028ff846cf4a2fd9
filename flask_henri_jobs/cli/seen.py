"""Jobs and arguments as commands show them: without what their tasks redact."""

from __future__ import annotations

import typing as t

from ..readable import readable
from ..redaction import concealed_args, marked

if t.TYPE_CHECKING:
    from ..extension import HenriJobs
    from ..job import Job


def seen(jobs: HenriJobs, job: Job) -> Job:
    """Return a job as it may be shown, a henri application's too, which stores no such names.

    One that some other program spoilt lacks what cannot be read.
    """
    return job.with_row(marked(readable(job.row), _redacted(jobs, job.name))).concealed()


def seen_args(jobs: HenriJobs, task: str, args: t.Any) -> t.Any:
    """Return the arguments of a task, as JSON has them, as they may be shown."""
    return concealed_args(args, _redacted(jobs, task))


def _redacted(jobs: HenriJobs, name: str) -> tuple[str, ...]:
    task = jobs.tasks.find(name)
    return () if task is None else task.defaults.redact
