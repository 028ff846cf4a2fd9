"""Whose data the code that runs now works on (T1)."""

from __future__ import annotations

import typing as t
from contextvars import ContextVar

from flask import current_app, has_request_context

from .checks import checked_name, shown
from .errors import ConfigError, InvalidFilter

FINDER = "henri_jobs_tenant"
"""Where an app's extensions have the function that finds the tenant of a request."""


_ACROSS = "Code that works across tenants says so first: with jobs.tenant(None): ..."


class _Scope(t.NamedTuple):
    """A scope that was entered; its tenant may be none."""

    tenant: str | None


_scope: ContextVar[_Scope | None] = ContextVar("flask_henri_jobs.tenant", default=None)


def tenant_in_scope() -> str | None:
    """Return the tenant whose code runs: of the innermost scope, or else of the request.

    :raises ConfigError: What ``HENRI_JOBS_TENANT`` returned is no tenant.
    """
    scope = _scope.get()
    return scope.tenant if scope is not None else _tenant_of_request()


class tenant_scope:  # noqa: N801 - used as a statement
    """A ``with`` statement whose block runs for a tenant, or for none, whatever is around it."""

    def __init__(self, tenant: str | None) -> None:
        self._tenant = tenant

    def __enter__(self) -> None:
        self._token = _scope.set(_Scope(self._tenant))

    def __exit__(self, *raised: object) -> None:
        _scope.reset(self._token)


class chosen_tenant(tenant_scope):  # noqa: N801 - used as a statement
    """Runs the block for a tenant that somebody names; ``jobs.tenant()`` is this.

    No generator: one that is left open is ended wherever it is collected, in another context.

    :raises ConfigError: On entering: it is no name, or another tenant is in scope.
    """

    def __enter__(self) -> None:
        if self._tenant is not None:
            named = as_tenant(self._tenant, "jobs.tenant()")
            self._tenant = allowed_tenant(named, "jobs.tenant()")
        super().__enter__()


def as_tenant(value: object, where: str) -> str:
    """Return a tenant's name."""
    return checked_name(value, where)


def allowed_tenant(tenant: str, where: str) -> str:
    """Return a tenant that is named, unless another one is in scope.

    :raises ConfigError: Another one is.
    """
    scope = tenant_in_scope()
    if scope is not None and scope != tenant:
        raise ConfigError(
            f"{where} names the tenant {shown(tenant)}, and this code runs for {shown(scope)}.",
            hint=_ACROSS,
        )
    return tenant


def visible_tenant(named: str | None) -> str | None:
    """Return whose jobs are looked at: those of the tenant in scope, or else of one that is named.

    :return: None for everybody's.
    :raises InvalidFilter: Another tenant is in scope than the one that is named (T2).
    """
    scope = tenant_in_scope()
    if scope is not None and named not in (None, scope):
        raise InvalidFilter(
            f"tenant is {shown(named)}, and this code runs for {shown(scope)}.", hint=_ACROSS
        )
    return named if scope is None else scope


def refuse_in_scope(what: str) -> None:
    """Refuse what touches the jobs of every tenant, where the code runs for one (T2).

    :raises InvalidFilter: A tenant is in scope.
    """
    scope = tenant_in_scope()
    if scope is not None:
        raise InvalidFilter(f"{what}, and this code runs for {shown(scope)}.", hint=_ACROSS)


def is_visible(tenant: str | None) -> bool:
    """Whether what is a tenant's, or nobody's, is seen by the code that runs now (T2)."""
    return tenant_in_scope() in (None, tenant)


def _tenant_of_request() -> str | None:
    if not has_request_context():
        return None
    find = current_app.extensions.get(FINDER)
    tenant = find() if find is not None else None
    return None if tenant is None else as_tenant(tenant, "What HENRI_JOBS_TENANT returned")


class CurrentTenant:
    """Stands for the tenant in scope, wherever it is used. Where there is none, it is false.

    It compares as the tenant's name does, and calling it returns that name, or None. So it may
    be a limit's key: ``concurrency={"limit": 1, "key": current_tenant}`` counts by tenant.
    """

    def __call__(self, /, **_arguments: object) -> str | None:
        return tenant_in_scope()

    def __bool__(self) -> bool:
        return tenant_in_scope() is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CurrentTenant) or tenant_in_scope() == other

    def __hash__(self) -> int:
        return hash(tenant_in_scope())

    def __str__(self) -> str:
        return tenant_in_scope() or ""

    def __repr__(self) -> str:
        tenant = tenant_in_scope()
        return "<no current tenant>" if tenant is None else f"<current tenant {tenant!r}>"


current_tenant = CurrentTenant()
"""The tenant in scope; false where there is none."""
