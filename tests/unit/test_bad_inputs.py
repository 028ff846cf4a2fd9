"""Every bad input is refused, in the words that ``tests/bad_inputs.py`` lists."""

from __future__ import annotations

import typing as t

import pytest

from bad_inputs import BAD_SETTINGS
from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.settings import Settings


@pytest.mark.parametrize(("config", "message"), BAD_SETTINGS)
def test_bad_settings(config: dict[str, t.Any], message: str) -> None:
    """A bad setting is refused by its name, with what is allowed."""
    with pytest.raises(ConfigError) as refused:
        Settings.from_config(config, app_name="shop", instance_path="instance")

    assert str(refused.value) == message
