"""What a connection string says, and how it is shown."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from hypothesis import given, strategies as st

from flask_henri_jobs.errors import ConfigError
from flask_henri_jobs.uri import checked_uri, database_in, mask_uri


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("mongodb://localhost", "mongodb://localhost"),
        ("mongodb://ann@db.example/jobs", "mongodb://ann@db.example/jobs"),
        ("mongodb://ann:pw@a:27017,b:27018/jobs", "mongodb://ann:***@a:27017,b:27018/jobs"),
        ("mongodb+srv://ann:pw@c.example/?w=1", "mongodb+srv://ann:***@c.example/?w=1"),
        ("mongodb://ann:p%40%3A%2F%25w@db/jobs", "mongodb://ann:***@db/jobs"),
        ("mongodb://ann:p@:/%w?x@db/jobs", "mongodb://ann:***@db/jobs"),
        ("mongodb://ann:x://y@db/jobs", "mongodb://ann:***@db/jobs"),
        ("mongodb://ann:@db", "mongodb://ann:***@db"),
        ("ann:pw@db/jobs", "ann:***@db/jobs"),
        ("ann:x://y@db", "ann:***@db"),
        ("postgres://ann:pw@db/jobs", "postgres://ann:***@db/jobs"),
        (
            "mongodb://db/?tls=true&tlsCertificateKeyFilePassword=pw&w=1",
            "mongodb://db/?tls=true&tlsCertificateKeyFilePassword=***&w=1",
        ),
        (
            "mongodb://db/?TLSCERTIFICATEKEYFILEPASSWORD=p;w",
            "mongodb://db/?TLSCERTIFICATEKEYFILEPASSWORD=***",
        ),
        (
            "mongodb://key:secret@db/?authMechanismProperties=AWS_SESSION_TOKEN:t0k3n&w=1",
            "mongodb://key:***@db/?authMechanismProperties=***&w=1",
        ),
        ("mongodb://db/?ssl_pem_passphrase=pw&w=1", "mongodb://db/?ssl_pem_passphrase=***&w=1"),
    ],
)
def test_secrets_are_masked(uri: str, masked: str) -> None:
    """The password and the secrets in the options are hidden, and the rest is shown."""
    assert mask_uri(uri) == masked


@given(st.text(min_size=1), st.booleans(), st.sampled_from(["", "/jobs", "/?w=1", "/?appName=a"]))
def test_no_password_is_shown(password: str, escaped: bool, rest: str) -> None:
    """Whatever the password is, and escaped or not, nothing that stands in it is shown."""
    secret = f"<{password}>"
    uri = f"mongodb://ann:{quote_plus(secret) if escaped else secret}@db.example{rest}"

    assert mask_uri(uri) == f"mongodb://ann:***@db.example{rest}"


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://localhost",
        "mongodb://localhost:27017/jobs?w=1",
        "mongodb://a,b:27018,[::1]:27019/",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock/jobs",
        "mongodb+srv://ann:p%40ss@cluster.example/jobs?appName=a@b",
    ],
)
def test_well_formed(uri: str) -> None:
    """A connection string of the right form is kept as it is."""
    assert checked_uri(uri, "URI") == uri


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("", "does not begin with"),
        ("localhost:27017", "does not begin with"),
        ("redis://:hunter2@localhost", "does not begin with"),
        ("mongodb://", "has no host"),
        ("mongodb:///jobs", "has no host"),
        ("mongodb://a,,b", "has no host"),
        ("mongodb://host:port", "has no host"),
        ("mongodb://ann:hunter2?@db", "has no host"),
        ("mongodb://ann:hunt@er2@db", "must be escaped"),
        ("mongodb://ann:hunt/er2@db", "must be escaped"),
        ("mongodb://ann:hunt:er2@db", "must be escaped"),
        ("mongodb://ann:hunter2%@db", "must be escaped"),
    ],
)
def test_ill_formed(uri: str, complaint: str) -> None:
    """A connection string of another form is refused, and never quoted."""
    with pytest.raises(ConfigError, match=complaint) as refused:
        checked_uri(uri, "HENRI_JOBS_URI")

    assert "er2" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "database"),
    [
        ("mongodb://localhost", None),
        ("mongodb://localhost/", None),
        ("mongodb://localhost/?w=1", None),
        ("mongodb://localhost/jobs", "jobs"),
        ("mongodb://ann:p%2Fw@a,b/my%5Fjobs?w=1", "my_jobs"),
        ("mongodb://localhost/jobs.things", "jobs"),
        ("mongodb+srv://c.example/jobs?x=/y@z", "jobs"),
    ],
)
def test_database(uri: str, database: str | None) -> None:
    """The database is what stands between the hosts and the options."""
    assert database_in(uri) == database
