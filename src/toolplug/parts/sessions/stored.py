"""Sessions in the store, read-only: nothing is written, and no session is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import NamedTuple

from toolplug.catalog.call import check_code
from toolplug.errors import GoneState, SessionGone, SessionNotFound, StoreRefused
from toolplug.parts.sessions.expiry import latest_expiry
from toolplug.parts.sessions.record import PREFIX, SessionState, abbreviate_code, read_state, record_key
from toolplug.parts.sessions.streams.events import StoredSessionEvent, event_id, logged_events
from toolplug.parts.sessions.streams.stream import logged_after
from toolplug.parts.sessions.tools.session_tool import DefinitionCache
from toolplug.stores.store import Store, key_pages

_LOG = logging.getLogger("toolplug.sessions")

_AT_ONCE = 50
"""Records that are read concurrently."""
_LOOK_EVERY_S = 30.0
"""Seconds between looks at the record, as an expiry is no event."""


class StoredSession(NamedTuple):
    """A session as its record has it, which does not include the presence of its plugin.

    `expires_at` is the latest expiry in seconds on the store's clock: the last sign may be newer than the stored one.
    """

    code: str
    state: SessionState
    expires_at: float

    def over(self, now: float) -> GoneState | None:
        """Return how the session has ended by this time of the store; None if it has not."""
        return self.state.gone or ("session_expired" if self.expires_at <= now else None)


class MissedChange(NamedTuple):
    """The log no longer has this event; all that it has follows."""

    event: int


class StoredSessions:
    """The sessions of one tenant in an open store, to which a host may be writing. The caller closes the store."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._pool = DefinitionCache()

    def now(self) -> float:
        """Return the store's time in seconds."""
        return self._store.now()

    async def live(self) -> list[StoredSession]:
        """Return the sessions that are not over, the last changed one last. Raises `StoreError`.

        A record that this version cannot read is left out, with a warning.
        """
        found: list[StoredSession] = []
        async for codes in stored_codes(self._store):
            for session in await asyncio.gather(*map(self._readable, codes)):
                if session is not None and session.over(self.now()) is None:
                    found.append(session)
        return sorted(found, key=lambda session: session.state.updated_at)

    async def find(self, code: str) -> StoredSession:
        """Return a live session. Raises `InvalidSessionCode`, `SessionNotFound`, `SessionGone` and `StoreError`."""
        session = await self._find(code)
        over = session.over(self.now())
        if over is not None:
            raise SessionGone(code, over)
        return session

    async def log(self, code: str) -> tuple[StoredSessionEvent, ...]:
        """Return all events in the log of a session. Raises `StoreError`."""
        return logged_events((await self._store.events(record_key(code), None)).entries)

    async def follow(self, code: str, after: int | None) -> AsyncGenerator[StoredSessionEvent | MissedChange]:
        """Yield the log after the event with this id (None: all of it), then each new event.

        Raises `InvalidSessionCode` and `SessionNotFound` before the first event, `SessionGone` after the last one of a
        session that is over, and `StoreError`.
        """
        session: StoredSession | None = await self._find(code)
        last = after
        while session is not None:
            over = session.over(self.now())
            # A session that is over may have last events, which are read once without waiting.
            patience_s = 0.0 if over else min(session.expires_at - self.now(), _LOOK_EVERY_S)
            page = await logged_after(self._store, record_key(code), last, wait_s=max(patience_s, 0.0))
            if not page.known and last is not None:
                yield MissedChange(last)
                last = None
                continue
            for event in logged_events(page.entries):
                yield event
            if page.entries:
                last = event_id(page.entries[-1].id)
            if over is not None:
                raise SessionGone(code, over)
            session = await self._read(code)
        raise SessionGone(code, "session_expired")

    async def _find(self, code: str) -> StoredSession:
        check_code(code)
        session = await self._read(code)
        if session is None:
            raise SessionNotFound(code)
        return session

    async def _readable(self, code: str) -> StoredSession | None:
        try:
            return await self._read(code)
        except StoreRefused as error:
            _LOG.warning("%s: %s", abbreviate_code(code), error)
            return None

    async def _read(self, code: str) -> StoredSession | None:
        record = await self._store.read(record_key(code))
        if record is None:
            return None
        state = read_state(record.value, self._pool)
        return StoredSession(code, state, latest_expiry(record, state.ttl_s)) if state.tenant == self._tenant else None


async def stored_codes(store: Store, *, at_once: int = _AT_ONCE) -> AsyncGenerator[list[str]]:
    """Yield the codes of all session records, so many at a time, also of ended sessions. Raises `StoreError`."""
    async for page in key_pages(store, PREFIX, at_once=at_once):
        yield [key.removeprefix(PREFIX) for key in page]
