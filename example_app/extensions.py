"""The extensions, made before there is an app, so that tasks can be declared with them."""

from __future__ import annotations

from flask_henri_jobs import HenriJobs

jobs = HenriJobs()
