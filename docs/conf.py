"""How the documentation is built: ``make docs``."""

from __future__ import annotations

import re
import typing as t
from importlib import metadata

from docutils import nodes

if t.TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "flask_henri_jobs"
copyright = "the authors of flask_henri_jobs"  # noqa: A001 - the name that Sphinx reads
release = metadata.version("flask-henri-jobs")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"flask_henri_jobs {release}"

PYTHON = "https://docs.python.org/3/library"
#: Where names are documented that are not ours. Nothing is fetched to build the pages.
ELSEWHERE = {
    "AbstractContextManager": f"{PYTHON}/contextlib.html#contextlib.AbstractContextManager",
    "Any": f"{PYTHON}/typing.html#typing.Any",
    "Callable": f"{PYTHON}/collections.abc.html#collections.abc.Callable",
    "ClickException": "https://click.palletsprojects.com/en/stable/api/#click.ClickException",
    "Client": "https://pymongo.readthedocs.io/en/stable/api/pymongo/mongo_client.html",
    "Flask": "https://flask.palletsprojects.com/en/stable/api/#flask.Flask",
    "OwnDatabase": "https://pymongo.readthedocs.io/en/stable/api/pymongo/database.html",
    "Unpack": f"{PYTHON}/typing.html#typing.Unpack",
    "datetime": f"{PYTHON}/datetime.html#datetime.datetime",
    "timedelta": f"{PYTHON}/datetime.html#datetime.timedelta",
}
#: Type variables, short names for a choice of types, and what has a table in ``reference/api.md``.
SHORT_NAMES = {
    *("P", "P.args", "P.kwargs", "R", "Alive", "AnyTask", "Duration", "Entries", "Found"),
    *("BatchOptions", "EnqueueOptions", "JobFilters", "TaskOptions", "Schedule"),
    *("Jobs", "Limits", "Misfire", "Names", "OnConflict", "Overlap", "QueuesOption"),
}
#: What a caller makes. All other classes are handed out, and how they are made is our business.
MADE_BY_CALLERS = {"HenriJobs", "Retry", "Snooze", "Discard", "inline", "manual"}

RULES = re.compile(r" ?\([A-Z]\d+(, [A-Z]\d+)*\)")


def find_elsewhere(
    app: Sphinx, env: t.Any, node: t.Any, contnode: nodes.Element
) -> nodes.Element | None:
    """Return a link for a name that Sphinx does not find as it is written."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    name = target.rpartition(".")[2]
    if url := ELSEWHERE.get(name):
        return nodes.reference("", "", contnode, internal=False, refuri=url)
    domain = env.domains.python_domain
    for ending in (f".{target}", f".{name}"):
        ours = [full for full in domain.objects if full.endswith(ending)]
        if len(ours) == 1:
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, node["reftype"], ours[0], node, contnode
            )
    return contnode if target in SHORT_NAMES or name in SHORT_NAMES else None


def without_rules(
    _app: Sphinx, _what: str, _name: str, _of: t.Any, _opt: t.Any, lines: list[str]
) -> None:
    """Leave out the numbers of rules, which are for those who change the code."""
    lines[:] = [RULES.sub("", line) for line in lines]


def without_constructor(_app: Sphinx, what: str, name: str, *_: t.Any) -> tuple[str, str] | None:
    """Leave out how a class is made that callers do not make."""
    if what == "class" and name.rpartition(".")[2] not in MADE_BY_CALLERS:
        return "", ""
    return None


def setup(app: Sphinx) -> None:
    app.connect("missing-reference", find_elsewhere)
    app.connect("autodoc-process-docstring", without_rules)
    app.connect("autodoc-process-signature", without_constructor)
