"""The documentation's own tests see what is wrong on a page."""

from __future__ import annotations

import typing as t

import pytest

from page_runner import PageRunner
from pages import blocks_of, is_shown

if t.TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str], None]:
    """Run a page with this text."""

    def run(text: str) -> None:
        page = tmp_path / "page.md"
        page.write_text(text)
        PageRunner(page, tmp_path, monkeypatch).run()

    return run


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```\n",
        "<!-- python\nassert 1 == 2\n-->\n",
        "```python\n# app.py\nno python\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```console\n$ flask routes --sort nothing\n```\n",
        "```console\n$ flask routes # ends with 1\n```\n",
        "```console\n$ flask --version\nFlask 0.1\n...\n```\n",
        "```console\n$ flask jobs perform --help\n...\nUsage: flask jobs enqueue ...\n```\n",
        "```console\n$ rm -r /\n```\n",
        "```console\nno command\n```\n",
        "```toml\n[a\n```\n",
        "```ini\nno section\n```\n",
        "```json\n{\n```\n",
        "```dockerfile\nRUNS pip\n```\n",
        "```cobol\n```\n",
        "```\nno language\n```\n",
    ],
)
def test_lies_are_seen(text: str, run: t.Callable[[str], None]) -> None:
    """What does not run, and what says something else, fails."""
    with pytest.raises((AssertionError, SyntaxError, ValueError)):
        run(text)


def test_truths_are_let_through(run: t.Callable[[str], None]) -> None:
    """A page that does what it says passes, and its blocks share their names."""
    run(
        """
<!-- python
import flask
-->

```python
name = flask.__name__
```

```pycon
>>> name
'flask'
```

<!-- not run: there is no such program -->

```console
$ nonsense
```

```console
$ flask jobs perform --help
Usage: flask jobs perform [OPTIONS] NAME [JSON]
...
$ flask jobs nonsense  # ends with 2
```

```toml
a = 1
```
"""
    )


def test_blocks_know_their_lines(tmp_path: Path) -> None:
    """A block is found with its line, its language and its file, in the order of the page."""
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- python\n1\n-->\n\n- b\n\n  ```python\n  # a/app.py\n  2\n  ```\n")

    hidden, shown = blocks_of(page)

    assert (hidden.line, hidden.text, hidden.file_name) == (4, "1\n", None)
    assert (shown.line, shown.text, shown.file_name) == (10, "# a/app.py\n2\n", "a/app.py")


@pytest.mark.parametrize(
    ("shows", "said", "expected"),
    [
        ("a ... c", "a b c", True),
        ("a  b", "a b", True),
        ("2h ago", "now", True),
        ("web1:4711:0a1b2c3d", "vm:1:ffffffff", True),
        ("019c1f3e-6a51-7c07-8f6b-3c3b4ff6d0f5", "01a2302f-afcf-74a2-bb1c-a97b78bcc419", True),
        ("2026-12-02 10:00:00", "2027-01-01 23:59:59", True),
        ("done 2", "done 3", False),
        ("a", "a\nb", False),
    ],
)
def test_kinds_are_compared(shows: str, said: str, expected: bool) -> None:
    """What differs each time is compared in kind, and all else to the letter."""
    assert is_shown(shows, said) is expected
