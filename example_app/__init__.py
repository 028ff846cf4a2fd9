"""An importer of places: the example application of flask_henri_jobs."""

from __future__ import annotations

import typing as t

from flask import Flask

from .extensions import jobs
from .views import views


def create_app(instance_path: str | None = None, **config: t.Any) -> Flask:
    """Return the application.

    :param instance_path: Where the embedded database keeps its data.
    :param config: Settings that win over those of the environment, such as
        ``FLASK_HENRI_JOBS_URI``.
    """
    app = Flask(__name__, instance_path=instance_path)
    app.config.from_mapping(HENRI_JOBS_URI="disk", MAX_CONTENT_LENGTH=16 * 1024 * 1024)
    app.config.from_prefixed_env()
    app.config.from_mapping(config)
    jobs.init_app(app)
    app.register_blueprint(views)
    return app
