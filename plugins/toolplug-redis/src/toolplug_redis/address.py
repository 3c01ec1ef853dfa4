"""The URL of a store: which server, database and keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from toolplug.errors import StoreMisused

WAIT_S = 2.0
"""How long an operation of the store may take, the time for a connection included."""
DEFAULT_PORT = 6379
DEFAULT_PREFIX = "toolplug"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_EXPECTED = "write redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server and what a store uses of it. `prefix` begins each key, and `ca` is a file of TLS certificates."""

    host: str
    port: int = DEFAULT_PORT
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: Path | None = None
    prefix: str = DEFAULT_PREFIX

    def options(self) -> dict[str, Any]:
        """Return the options of each connection.

        A lost command is never sent again: nobody knows whether the server has executed it.
        """
        options: dict[str, Any] = {
            "username": self.username,
            "password": self.password,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,  # nor have they times of their own: those of the server's commands are enough
            "socket_connect_timeout": None,
            "max_connections": 2**31,
        }
        if self.tls:
            options |= {"ssl": True, "ssl_ca_certs": None if self.ca is None else str(self.ca)}
        return options

    def client(self, host: str | None = None, port: int | None = None) -> Any:
        """Return a client of this server, or of another one of its cluster."""
        return Redis(host=host or self.host, port=port or self.port, db=self.db, **self.options())


def read_address(url: str, *, folder: Path) -> Address:
    """Return the address that a URL names: `redis://[USER:PASSWORD@]HOST[:PORT][/DB][?prefix=TEXT][&ca=FILE]`.

    `rediss` is for TLS, and `ca` a file of certificates to trust, relative to `folder`. Raises `StoreMisused`, which
    does not contain the URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise StoreMisused(f"the URL of the Redis store has no valid host or port; {_EXPECTED}") from None
    if not parts.hostname or parts.fragment:
        raise StoreMisused(f"the URL of the Redis store has no host, or a part after '#'; {_EXPECTED}")
    options = _options(parts, {"prefix", "ca"} if parts.scheme == "rediss" else {"prefix"})
    prefix = options.get("prefix", DEFAULT_PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise StoreMisused(f"the prefix {prefix!r} of the Redis store is not 1 to 64 of A-Z a-z 0-9 _ . : -")
    return Address(
        host=parts.hostname,
        port=DEFAULT_PORT if port is None else port,
        db=_database(parts.path),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        ca=folder / options["ca"] if "ca" in options else None,
        prefix=prefix,
    )


def _database(path: str) -> int:
    number = path.removeprefix("/")
    if not (number.isascii() and number.isdigit()) and number:
        raise StoreMisused(f"the Redis database {number!r} is no number; {_EXPECTED}")
    return int(number or 0)


def _options(parts: SplitResult, known: set[str]) -> dict[str, str]:
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    wrong = sorted(options.keys() - known) or [name for name, value in given if not value or options[name] != value]
    if wrong:
        names = ", ".join(sorted(known))
        raise StoreMisused(f"option {wrong[0]!r} of the {parts.scheme} store; known, once each: {names}")
    return options
