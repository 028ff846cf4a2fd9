"""How the documentation is built: ``make docs``."""

from __future__ import annotations

from importlib import metadata

project = "flask_henri_jobs"
copyright = "the authors of flask_henri_jobs"  # noqa: A001 - the name that Sphinx reads
release = metadata.version("flask-henri-jobs")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"flask_henri_jobs {release}"
