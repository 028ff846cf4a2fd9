"""Whose code runs."""

from __future__ import annotations

import typing as t

import pytest
from flask import Flask, request

from flask_henri_jobs import ConfigError, HenriJobs, current_tenant
from flask_henri_jobs.options import Overrides
from flask_henri_jobs.tenant import tenant_in_scope, tenant_scope

jobs = HenriJobs()


def app_of(tenant: t.Callable[[], t.Any] | None) -> Flask:
    app = Flask("shop")
    app.config["HENRI_JOBS_TENANT"] = tenant
    HenriJobs(app)
    return app


def test_nobody_is_in_scope() -> None:
    """T1: outside a scope current_tenant is false, equal to None, and empty text."""
    assert not current_tenant
    assert current_tenant() is None
    assert current_tenant == None  # noqa: E711 - that it compares so is the claim
    assert str(current_tenant) == ""
    assert repr(current_tenant) == "<no current tenant>"


def test_current_tenant_stands_for_the_name() -> None:
    """T1: in a scope current_tenant compares, prints and hashes as the tenant's name does."""
    with jobs.tenant("acme"):
        assert current_tenant
        assert current_tenant == "acme"
        assert current_tenant != "globex"
        assert current_tenant == current_tenant()
        assert f"reports/{current_tenant}" == "reports/acme"
        assert {"acme": 1}[current_tenant] == 1  # type: ignore[index]
        assert repr(current_tenant) == "<current tenant 'acme'>"


def test_scope_ends_with_its_block() -> None:
    """T1, W9: the scope before is back after a block, and after one that raised."""
    with jobs.tenant("acme"):
        with pytest.raises(ZeroDivisionError), jobs.tenant("acme"):
            raise ZeroDivisionError
        assert current_tenant == "acme"
        with jobs.tenant(None):
            assert not current_tenant
        assert current_tenant == "acme"
    assert not current_tenant


def test_other_tenant_is_refused() -> None:
    """T1: a scope is not entered within another tenant's; it is once that one was left."""
    with jobs.tenant("acme"):
        with pytest.raises(ConfigError) as refused, jobs.tenant("globex"):
            pass
        with jobs.tenant(None), jobs.tenant("globex"):
            assert current_tenant == "globex"

    assert str(refused.value) == (
        "jobs.tenant() names the tenant 'globex', and this code runs for 'acme'."
        " Code that works across tenants says so first: with jobs.tenant(None): ..."
    )


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513, 7, {"$ne": None}])
def test_bad_names_are_refused(name: t.Any) -> None:
    """T1: a tenant is text of 1 to 512 bytes without control characters."""
    with pytest.raises(ConfigError, match=r"^jobs\.tenant\(\) is "), jobs.tenant(name):
        pass
    with pytest.raises(ConfigError, match=r"^tenant is "):
        Overrides.read({"tenant": name})


def test_request_has_its_tenant() -> None:
    """T1: HENRI_JOBS_TENANT is asked in a request, and a scope that was entered wins over it."""
    app = app_of(lambda: request.headers.get("X-Tenant"))

    with app.test_request_context(headers={"X-Tenant": "acme"}):
        assert current_tenant == "acme"
        with pytest.raises(ConfigError), jobs.tenant("globex"):
            pass
        with tenant_scope(None):
            assert not current_tenant
    with app.test_request_context():
        assert not current_tenant
    with app.app_context():
        assert tenant_in_scope() is None


@pytest.mark.parametrize("returned", ["", 7])
def test_what_the_function_returns_is_checked(returned: object) -> None:
    """T1: an id that is no text, or an empty name, is refused rather than taken for no tenant."""
    with (
        app_of(lambda: returned).test_request_context(),
        pytest.raises(ConfigError, match=r"^What HENRI_JOBS_TENANT returned is "),
    ):
        current_tenant()


def test_an_app_has_one_function() -> None:
    """A second queue of an app may not find tenants in another way than the first."""
    app = app_of(lambda: "acme")

    HenriJobs(app, collection="second")
    with pytest.raises(ConfigError, match="have two functions for HENRI_JOBS_TENANT"):
        HenriJobs(app, collection="third", tenant=lambda: "globex")
