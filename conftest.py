"""The fixtures that the package brings, for the example's tests, and pytest's for plugins."""

from __future__ import annotations

import signal

pytest_plugins = ["flask_henri_jobs.pytest_plugin", "pytester"]

# A shell that starts the tests in the background has Ctrl-C ignored, and every process that they
# start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
