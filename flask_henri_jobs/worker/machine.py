"""Which process is which on this machine, so that a dead one is known from any other."""

from __future__ import annotations

import os
import socket
from pathlib import Path

PROC = Path("/proc")


def this_machine() -> str | None:
    """Return what processes have in common that know each other by their numbers.

    That is a boot of a host, and on it a space of process numbers: each container has its own. It
    is None where the system does not say.
    """
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = (PROC / "self/ns/pid").readlink()
    except OSError:
        return None
    return f"{socket.gethostname()}/{boot}/{numbers}"


def born_at(pid: int) -> str | None:
    """Return when a process began, by the machine's own count; None where there is none.

    Numbers are given again: with this, one means the same process.
    """
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name before it may have spaces and brackets of its own.
    fields = stat.rpartition(")")[2].split()
    is_dead = fields[0] in "ZX"
    return None if is_dead else fields[19]


def own_traits() -> dict[str, str]:
    """Return what tells this process from all others; nothing where the system does not say."""
    machine, born = this_machine(), born_at(os.getpid())
    return {"machine": machine, "born": born} if machine and born else {}
