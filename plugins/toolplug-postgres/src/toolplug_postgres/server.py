"""The address and the options of the server, and the meaning of its errors."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg.exceptions import InternalClientError, TargetServerAttributeNotMatched

from toolplug.errors import StoreError, StoreMisused, StoreRefused, StoreUnavailable
from toolplug.runtime import LoopTimeout

PATIENCE_S = 1.8
"""How long a statement may take before its connection is dropped. With what is around it, an answer comes in 2 s."""

_CONNECT_S = 1.5
# The driver's own, by the clock: never before the one above.
_DRIVER_CONNECT_S = 60.0
# The server gives up first, so that a statement without answer is also one that did nothing.
_STATEMENT_MS = 1500

_SCHEMA = re.compile("[a-z_][a-z0-9_]{0,39}")
_DURABILITIES = ("on", "off", "local", "remote_write", "remote_apply")
_TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_KNOWN = "synchronous_commit, schema, host, sslmode, sslrootcert, sslcert, sslkey, sslcrl"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:@/\[\]]+)(:[0-9]{1,5})?")
_FORM = (
    "postgresql://user:password@host:5432/database (in the password, # is written as %23, / as %2F, ? as %3F, "
    "@ as %40 and % as %25)"
)
_HERE = Path()
_FIXES = {
    "28P01": "check user and password",
    "28000": "check user and password, and pg_hba.conf of the server",
    "3D000": "create it with createdb, or name another one in `store`",
    "42501": "let its owner grant the right, or create the schema for this user: CREATE SCHEMA … AUTHORIZATION …",
    "53300": "raise max_connections of the server; each process of toolplug uses five",
    "53100": "make room on the disk of the server",
    "25006": "name the primary server in `store`, or end the read-only mode",
    "42P01": "its tables were removed; restore them, or start toolplug again",
}
_DAMAGED = frozenset({"XX001", "XX002"})

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, InternalClientError, OSError, TimeoutError)
"""What the driver raises for a server that is away, refuses or fails."""


class Unanswered(StoreUnavailable):
    """The server did not answer: whether it has executed the statement is not known."""


class ConnectionLost(Unanswered):
    """The connection ended while a statement was under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A database and how to connect to it.

    `place`: names it in errors, without user and password. `schema`: that of our tables. `synchronous_commit`: the
    durability of commits; `None` is that of the server.
    """

    dsn: str = field(repr=False)
    place: str
    schema: str = "toolplug"
    synchronous_commit: str | None = None

    async def connect(self, *, synchronous_commit: str | None = None) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to a server that takes writes. Raises `StoreError`."""
        durability = synchronous_commit or self.synchronous_commit
        settings = {
            "application_name": "toolplug",
            "default_transaction_isolation": "read committed",
            "statement_timeout": str(_STATEMENT_MS),
            # To plan the statement of a commit takes longer than to run it; and one plan must do for tables that grow.
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "jit": "off",
            **({} if durability is None else {"synchronous_commit": durability}),
        }
        try:
            async with LoopTimeout(_CONNECT_S):
                return await asyncpg.connect(self.dsn, timeout=_DRIVER_CONNECT_S, server_settings=settings)
        except DRIVER_ERRORS as error:
            raise self.error(error) from None

    def error(self, error: Exception) -> StoreError:
        """Return the `StoreError` for an error of the driver, naming the place and, where one is known, the fix."""
        code = getattr(error, "sqlstate", None) or ""
        fix = f"; {_FIXES[code]}" if code in _FIXES else ""
        if isinstance(error, TargetServerAttributeNotMatched):
            return StoreUnavailable(f"{self.place} is read-only; {_FIXES['25006']}")
        if isinstance(error, TimeoutError):
            return Unanswered(f"{self.place} did not answer within two seconds")
        if isinstance(error, asyncpg.PostgresError):
            refused = StoreRefused if code in _DAMAGED else StoreUnavailable
            return refused(f"{self.place}: {error.args[0]}{fix}")
        if isinstance(error, OSError):
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            return StoreUnavailable(f"{self.place} cannot be reached: {why}")
        return StoreUnavailable(f"{self.place}: {error}")


def parse_url(url: str, *, folder: Path = _HERE) -> Server:
    """Return the server that a URL names. Raises `StoreMisused`, whose message has no part of a password.

    `postgresql://user:password@host:port/database`, with options after `?`: `synchronous_commit` (on, off, local,
    remote_write, remote_apply), `schema` (toolplug), `sslmode` and the files `sslrootcert`, `sslcert`, `sslkey` and
    `sslcrl` as for libpq, relative to `folder`, and `host` (the folder of a Unix socket). Several hosts are divided by
    commas: the first that takes writes is used.
    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise StoreMisused(f"the URL of the PostgreSQL store cannot be read: write {_FORM}") from None
    hosts = unquote(parts.netloc.rpartition("@")[2])
    database = unquote(parts.path[1:])
    # Of a password with a character that ends a part of a URL, the rest is where an @ has no meaning.
    misread = "@" in parts.path + parts.query + parts.fragment or parts.fragment
    if misread or not database or not all(_HOST.fullmatch(host) for host in hosts.split(",") if hosts):
        raise StoreMisused(f"a PostgreSQL store names a host and a database: {_FORM}")
    hosts = hosts or options.get("host", "")
    if not hosts:
        raise StoreMisused(f"a PostgreSQL store names a host, or the folder of a Unix socket with ?host=: {_FORM}")
    schema, durability = options.pop("schema", "toolplug"), options.pop("synchronous_commit", None)
    if unknown := sorted(options.keys() - {"host", "sslmode", *_FILES}):
        raise StoreMisused(f"unknown option {unknown[0]!r} of the PostgreSQL store; known: {_KNOWN}")
    if not _SCHEMA.fullmatch(schema):
        raise StoreMisused(
            f"schema {schema!r} of the PostgreSQL store: give at most 40 of a-z, 0-9 and _, no digit first"
        )
    for name, value, known in (
        ("synchronous_commit", durability, _DURABILITIES),
        ("sslmode", options.get("sslmode"), _TLS_MODES),
    ):
        if value is not None and value not in known:
            raise StoreMisused(f"{name}={value!r} of the PostgreSQL store; known: {', '.join(known)}")
    files = {name: str(folder / path) for name, path in options.items() if name in _FILES}
    # A standby would take no writes, and its reads may miss acknowledged changes.
    query = urlencode({**options, **files, "target_session_attrs": "read-write"})
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
    return Server(dsn=dsn, place=f"PostgreSQL at {hosts}/{database}", schema=schema, synchronous_commit=durability)
