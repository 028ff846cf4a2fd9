"""Background jobs for Flask on MongoDB."""

from __future__ import annotations

from . import signals
from .batch import Batch
from .context import current_job
from .errors import (
    BatchSealed,
    ConfigError,
    Discard,
    HenriJobsError,
    InvalidArguments,
    JobCancelled,
    JobFailed,
    JobTimeout,
    Retry,
    Snooze,
    StoreUnavailable,
    UniqueKeyTaken,
    UnknownBatch,
    UnknownTask,
    WaitTimeout,
)
from .extension import HenriJobs
from .job import Job
from .task import Task
from .tenant import current_tenant

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchSealed",
    "ConfigError",
    "Discard",
    "HenriJobs",
    "HenriJobsError",
    "InvalidArguments",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobTimeout",
    "Retry",
    "Snooze",
    "StoreUnavailable",
    "Task",
    "UniqueKeyTaken",
    "UnknownBatch",
    "UnknownTask",
    "WaitTimeout",
    "current_job",
    "current_tenant",
    "signals",
]
