"""The tables in their own PostgreSQL schema: created by the first process, checked by all."""

from __future__ import annotations

import asyncpg

from toolplug.errors import StoreRefused
from toolplug_postgres.server import DRIVER_ERRORS, Server

_VERSION = 1
_OLDEST_SERVER = 130000

_FACTS = """
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident($1))),
    to_regclass(quote_ident($1) || '.version') IS NOT NULL
"""
# An existing schema may be one that its owner made for a user who may not make any.
_SCHEMA = """
DO $$ BEGIN IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF; END $$;
"""
# A removed record stays as a row without value, until `expires_at`: the next record of the key begins above it.
_TABLES = """
CREATE {unlogged} TABLE {schema}.{prefix}records (
    key text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    expires_at double precision,
    origin bigint NOT NULL,
    position bigint NOT NULL,
    appended bigint NOT NULL,
    value bytea
);
CREATE INDEX ON {schema}.{prefix}records (expires_at) WHERE expires_at IS NOT NULL;
CREATE {unlogged} TABLE {schema}.{prefix}events (
    key text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (key, id)
);
"""
_VERSION_TABLE = """
CREATE TABLE {schema}.version (version integer NOT NULL);
INSERT INTO {schema}.version VALUES ({version});
"""


async def prepare(connection: asyncpg.Connection[asyncpg.Record], server: Server) -> None:
    """Create the tables if there are none.

    Raises `StoreRefused` for those of a newer toolplug, which stay unchanged, and `StoreUnavailable`.
    """
    try:
        if await _found(connection, server):
            return
        # Processes that start at once wait here for the first one; the lock ends with the transaction.
        async with connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"toolplug {server.schema}"
            )
            if not await _found(connection, server):
                await connection.execute(_script(f'"{server.schema}"'))
    except DRIVER_ERRORS as error:
        raise server.error(error) from None


async def _found(connection: asyncpg.Connection[asyncpg.Record], server: Server) -> bool:
    """Return whether our tables are there. Raises `StoreRefused` for a server or a schema that cannot be used."""
    ((release, encoding, tables, version),) = await connection.fetch(_FACTS, server.schema)
    if release < _OLDEST_SERVER:
        raise StoreRefused(f"{server.place} is PostgreSQL {release // 10000}; toolplug needs 13 or newer")
    if encoding != "UTF8":
        raise StoreRefused(
            f"{server.place} has the encoding {encoding}; name a database with UTF8: createdb --encoding=UTF8 …"
        )
    if not version and tables:
        raise StoreRefused(
            f"the schema {server.schema} of {server.place} has tables of another program; name another with ?schema="
        )
    if version:
        await _check_version(connection, server)
    return version


async def _check_version(connection: asyncpg.Connection[asyncpg.Record], server: Server) -> None:
    found = await connection.fetchval(f'SELECT max(version) FROM "{server.schema}".version')
    if found is None or found > _VERSION:
        raise StoreRefused(
            f"the schema {server.schema} of {server.place} was written by a newer toolplug (version {found}; this one "
            f"knows {_VERSION}); install that version again, or name another schema with ?schema="
        )


def _script(schema: str) -> str:
    tables = (
        _TABLES.format(unlogged=unlogged, schema=schema, prefix=prefix)
        for unlogged, prefix in (("", ""), ("UNLOGGED", "volatile_"))
    )
    return "".join([_SCHEMA.format(schema=schema), *tables, _VERSION_TABLE.format(schema=schema, version=_VERSION)])
