"""The URL of a PostgreSQL store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from toolplug.errors import StoreMisused
from toolplug_postgres.plugin import stores
from toolplug_postgres.server import parse_url

pytestmark = pytest.mark.requirement("C-12-postgres-url")

SECRETS = ("hunter2", "hun", "ter2")


def test_both_schemes_open_a_store_and_connect_to_nothing(tmp_path: Path) -> None:
    for scheme, open_store in stores().items():
        store = open_store(f"{scheme}://me:hunter2@nowhere.invalid/db", folder=tmp_path)
        assert store.shared
        assert store.id != open_store(f"{scheme}://me:hunter2@nowhere.invalid/db", folder=tmp_path).id
    assert sorted(stores()) == ["postgres", "postgresql"]


def test_options_are_those_of_the_store_and_of_tls(tmp_path: Path) -> None:
    server = parse_url(
        "postgres://me:hun%40ter2@[::1]:5433,second.example/db%20one"
        "?schema=tools&synchronous_commit=off&sslmode=verify-full&sslrootcert=ca.pem",
        folder=tmp_path,
    )
    assert (server.schema, server.synchronous_commit) == ("tools", "off")
    assert server.place == "PostgreSQL at [::1]:5433,second.example/db one"
    parts = urlsplit(server.dsn)
    assert (parts.scheme, parts.netloc) == ("postgresql", "me:hun%40ter2@[::1]:5433,second.example")
    assert dict(parse_qsl(parts.query)) == {
        "sslmode": "verify-full",
        "sslrootcert": str(tmp_path / "ca.pem"),
        "target_session_attrs": "read-write",
    }
    assert not any(secret in repr(server) for secret in SECRETS)
    assert parse_url("postgresql:///db?host=/run/postgresql").place == "PostgreSQL at /run/postgresql/db"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://me:hunter2@host", "names a host and a database"),
        ("postgresql:///db", "Unix socket"),
        ("postgresql://me:hunter2@host:port/db", "names a host and a database"),
        ("postgresql://me:hunter2@[::1/db", "cannot be read"),
        ("postgresql://me:hun/ter2@host/db", "%2F"),
        ("postgresql://me:12/hunter2@host/db", "%2F"),
        ("postgresql://me:12/db?host=hunter2@host/db", "%3F"),
        ("postgresql://me:hun#ter2@host/db", "%23"),
        ("postgresql://me:hun?ter2@host/db", "%3F"),
        ("postgresql://me:hun?ter2=1@host/db", "%3F"),
        ("postgresql://me:hunter2@host/db?pool=5", "unknown option 'pool' .* synchronous_commit"),
        ("postgresql://me:hunter2@host/db?schema=My-Tools", "a-z"),
        ("postgresql://me:hunter2@host/db?synchronous_commit=maybe", "remote_apply"),
        ("postgresql://me:hunter2@host/db?sslmode=yes", "verify-full"),
    ],
)
def test_another_url_is_refused_with_the_fix_and_without_the_password(url: str, words: str) -> None:
    with pytest.raises(StoreMisused, match=words) as caught:
        parse_url(url)
    assert not any(secret in str(caught.value) for secret in SECRETS)
