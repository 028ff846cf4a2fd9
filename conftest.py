"""The fixtures that the package brings, for the example's tests, and pytest's for plugins."""

pytest_plugins = ["flask_henri_jobs.pytest_plugin", "pytester"]
