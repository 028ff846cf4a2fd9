"""When a process has served its time: so many jobs, so much memory, or code that changed (W11)."""

from __future__ import annotations

import os
import sys
import sysconfig
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ..clock import steady_seconds

if t.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_SECONDS = 1.0
RELOAD_SECONDS = 0.5
_INSTALLED = tuple(
    str(Path(path).resolve())
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)


@dataclass(slots=True)
class Wear:
    """Whether a process is to be replaced.

    :param max_jobs: After so many jobs; None for any number.
    :param max_memory: When it takes so many bytes.
    :param memory: Returns how many it takes.
    """

    max_jobs: int | None = None
    max_memory: int | None = None
    memory: Callable[[], int] = field(default_factory=lambda: resident_bytes)
    _look_at: float = 0.0
    _is_large: bool = False

    def is_worn(self, jobs: int) -> bool:
        """Whether the process has done enough.

        :param jobs: How many jobs it has taken.
        """
        return (self.max_jobs is not None and jobs >= self.max_jobs) or self._has_grown()

    def _has_grown(self) -> bool:
        if self.max_memory is not None and steady_seconds() >= self._look_at:
            self._look_at = steady_seconds() + LOOK_SECONDS
            self._is_large = self.memory() >= self.max_memory
        return self._is_large


def resident_bytes() -> int:
    """Return how much memory this process takes; where the system does not say, its most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return pages * os.sysconf("SC_PAGE_SIZE")


class Sources:
    """The files of the project's modules, as they were when each was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.changed()

    def changed(self) -> str | None:
        """Return a file that has changed or gone since this was asked last, or None."""
        found = None
        for path in _project_files():
            changed_at = _changed_at(path)
            if self._seen.setdefault(path, changed_at) != changed_at:
                self._seen[path] = changed_at
                found = path
        return found


def _project_files() -> Iterator[str]:
    """Yield the files of the imported modules that nobody installed."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and not _is_installed(path):
            yield path


def _is_installed(path: str) -> bool:
    return path.startswith(_INSTALLED) or "site-packages" in path or "dist-packages" in path


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        # An editor that writes a new file and renames it leaves none for a moment.
        return 0
