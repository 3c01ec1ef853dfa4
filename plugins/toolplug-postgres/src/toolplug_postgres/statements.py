"""The SQL statements. Each is a transaction of its own: no lock is held while this process computes or is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

# The clock is the server's; tests give the time instead.
_NOW = "coalesce({parameter}::float8, extract(epoch FROM clock_timestamp())::float8)"
_LIVING = "value IS NOT NULL AND (expires_at IS NULL OR expires_at > {now})"

_READ = """
SELECT value, revision, expires_at, position FROM {records} WHERE key = $1 AND {living}
"""
_KEYS = """
SELECT key FROM (
    SELECT key, expires_at, value FROM "{schema}".records UNION ALL
    SELECT key, expires_at, value FROM "{schema}".volatile_records
) AS records
WHERE key >= $1 AND key < $2 AND key <> $3 AND {living}
ORDER BY key LIMIT $5
"""
_REVISIONS = """
SELECT key, revision FROM "{schema}".records WHERE key = ANY($1::text[]) AND {living} UNION ALL
SELECT key, revision FROM "{schema}".volatile_records WHERE key = ANY($1::text[]) AND {living}
"""
# One statement, so that position and events are of one moment. A row without event says that the position is known.
_EVENTS = """
SELECT event.id, event.data
FROM {records} AS record LEFT JOIN (
    SELECT id, data FROM {events} WHERE key = $1 AND id > coalesce($2::bigint, -1) ORDER BY id LIMIT $4
) AS event ON true
WHERE record.key = $1 AND {living} AND (
    $2 IS NULL
    OR EXISTS (SELECT FROM {events} WHERE key = $1 AND id = $2)
    OR (origin = $2 AND appended = (SELECT count(*) FROM {events} WHERE key = $1))
)
ORDER BY event.id
"""
_HEADS = """
SELECT now, key, value IS NOT NULL, revision, expires_at, origin, position, appended
FROM (SELECT {now} AS now) AS clock LEFT JOIN {records} ON key = ANY($1::text[])
"""
# Writes all, or nothing if another process has changed one of the records since they were read. Rows are locked in the
# order of their keys before anything is written, so that two processes never wait for each other in a circle. A key
# that another process has created in between is a violation of the primary key, which ends the statement.
_WRITE = """
WITH expected AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::float8[])
        AS e (key, revision, position, expires_at)
), locked AS MATERIALIZED (
    SELECT key, revision, position, expires_at FROM {records} WHERE key = ANY($1) ORDER BY key FOR UPDATE
), checked AS MATERIALIZED (
    SELECT count(*) = cardinality($1) AS unchanged FROM locked JOIN expected USING (key, revision, position)
    WHERE locked.expires_at IS NOT DISTINCT FROM expected.expires_at
), written AS (
    SELECT w.* FROM checked, unnest(
        $5::text[], $6::bigint[], $7::float8[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bool[]
    ) AS w (key, revision, expires_at, origin, position, appended, value, has_value)
    WHERE unchanged
), updated AS (
    UPDATE {records} AS r SET
        revision = w.revision, expires_at = w.expires_at, origin = w.origin, position = w.position,
        appended = w.appended, value = CASE WHEN w.has_value THEN w.value ELSE r.value END
    FROM written AS w WHERE r.key = w.key AND w.key = ANY($1)
), inserted AS (
    INSERT INTO {records} (key, revision, expires_at, origin, position, appended, value)
    SELECT key, revision, expires_at, origin, position, appended, value FROM written
    WHERE key <> ALL($1) ORDER BY key
), emptied AS (
    DELETE FROM {events} AS e USING checked WHERE unchanged AND e.key = ANY($13::text[])
), trimmed AS (
    DELETE FROM {events} AS e USING checked, unnest($14::text[], $15::bigint[]) AS full_log (key, last)
    WHERE unchanged AND e.key = full_log.key AND e.id <= full_log.last
), appended AS (
    INSERT INTO {events} (key, id, data)
    SELECT a.* FROM checked, unnest($16::text[], $17::bigint[], $18::bytea[]) AS a WHERE unchanged
)
SELECT unchanged, (
    SELECT count(pg_notify(channel, payload)) FROM unnest($19::text[], $20::text[]) AS n (channel, payload)
    WHERE unchanged
) FROM checked
"""
# Those that another process has locked are removed by it.
_PURGE = """
WITH gone AS MATERIALIZED (
    SELECT key FROM {records} WHERE expires_at <= {now} ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
), emptied AS (
    DELETE FROM {events} AS e USING gone WHERE e.key = gone.key
), removed AS (
    DELETE FROM {records} AS r USING gone WHERE r.key = gone.key
)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements for the records of one table, durable or volatile, with the parameters in their order."""

    read: str
    """key, now"""
    events: str
    """key, after, now, limit"""
    heads: str
    """keys, now"""
    write: str
    """See `writer.py`."""
    purge: str
    """now, limit"""

    @classmethod
    def of(cls, schema: str, *, volatile: bool) -> Self:
        """Return the statements for one table of a schema."""
        prefix = f'"{schema}".volatile_' if volatile else f'"{schema}".'

        def fill(statement: str, parameter: str) -> str:
            now = _NOW.format(parameter=parameter)
            return statement.format(
                records=f"{prefix}records", events=f"{prefix}events", now=now, living=_LIVING.format(now=now)
            )

        return cls(
            read=fill(_READ, "$2"),
            events=fill(_EVENTS, "$3"),
            heads=fill(_HEADS, "$2"),
            write=fill(_WRITE, ""),
            purge=fill(_PURGE, "$1"),
        )


def keys_statement(schema: str) -> str:
    """Return the statement that lists keys: least, beyond, after, now, limit."""
    return _KEYS.format(schema=schema, living=_LIVING.format(now=_NOW.format(parameter="$4")))


def revisions_statement(schema: str) -> str:
    """Return the statement for the revisions of records: keys, now."""
    return _REVISIONS.format(schema=schema, living=_LIVING.format(now=_NOW.format(parameter="$2")))
