"""Sessions as the store has them, for those who only look: nothing is written, and no session comes to life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import NamedTuple

from toolplug.errors import GoneState, SessionGone, SessionNotFound, StoreRefused
from toolplug.sessions.events import LoggedEvent, event_id, logged_events
from toolplug.sessions.expiry import latest_expiry
from toolplug.sessions.record import PREFIX, SessionState, check_code, read_state, record_key, shown
from toolplug.sessions.session_log import logged_after
from toolplug.sessions.session_tool import DefinitionCache
from toolplug.stores.store import Store

_LOG = logging.getLogger("toolplug.sessions")

_AT_ONCE = 50
"""Records that are read at a time."""
_LOOK_EVERY_S = 30.0
"""An expiry is no event."""


class StoredSession(NamedTuple):
    """A session as its record says. Whether its application is connected now, no record knows.

    It expires at `expires_at` at the latest, on the store's clock: its last sign may be newer than the one kept.
    """

    code: str
    state: SessionState
    expires_at: float

    def over(self, now: float) -> GoneState | None:
        """How it has ended; None while it lives."""
        return self.state.gone or ("session_expired" if self.expires_at <= now else None)


class Missed(NamedTuple):
    """The log does not hold this event: what follows is all that it has."""

    event: int


class StoredSessions:
    """The sessions of one tenant in an open store, which a host may be writing."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._pool = DefinitionCache()

    def now(self) -> float:
        """The store's time."""
        return self._store.now()

    async def live(self) -> list[StoredSession]:
        """Those that are not over, the one that changed last at the end. Raises `StoreError`.

        A record that this toolplug cannot read is left out, with a warning.
        """
        found: list[StoredSession] = []
        async for codes in stored_codes(self._store):
            for session in await asyncio.gather(*map(self._readable, codes)):
                if session is not None and session.over(self.now()) is None:
                    found.append(session)
        return sorted(found, key=lambda session: session.state.updated_at)

    async def find(self, code: str) -> StoredSession:
        """One that is not over. Raises `InvalidSessionCode`, `SessionNotFound`, `SessionGone` and `StoreError`."""
        session = await self._known(code)
        over = session.over(self.now())
        if over is not None:
            raise SessionGone(code, over)
        return session

    async def log(self, code: str) -> tuple[LoggedEvent, ...]:
        """What its log holds. Raises `StoreError`."""
        return logged_events((await self._store.events(record_key(code), None)).entries)

    async def follow(self, code: str, after: int | None) -> AsyncGenerator[LoggedEvent | Missed]:
        """Its log after an event (None: all that is kept), then each event as it comes, also of one that is over.

        Raises `SessionGone` after the last event; before the first, and only then, `InvalidSessionCode` and
        `SessionNotFound`. Raises `StoreError`.
        """
        session: StoredSession | None = await self._known(code)
        last = after
        while session is not None:
            over = session.over(self.now())
            patience_s = 0.0 if over else min(session.expires_at - self.now(), _LOOK_EVERY_S)
            page = await logged_after(self._store, record_key(code), last, wait_s=max(patience_s, 0.0))
            if not page.known and last is not None:
                yield Missed(last)
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

    async def _known(self, code: str) -> StoredSession:
        check_code(code)
        session = await self._read(code)
        if session is None:
            raise SessionNotFound(code)
        return session

    async def _readable(self, code: str) -> StoredSession | None:
        try:
            return await self._read(code)
        except StoreRefused as error:
            _LOG.warning("%s: %s", shown(code), error)
            return None

    async def _read(self, code: str) -> StoredSession | None:
        record = await self._store.read(record_key(code))
        if record is None:
            return None
        state = read_state(record.value, self._pool)
        return StoredSession(code, state, latest_expiry(record, state.ttl_s)) if state.tenant == self._tenant else None


async def stored_codes(store: Store) -> AsyncGenerator[list[str]]:
    """The codes of all records of sessions, those that are only remembered too, some at a time. Raises `StoreError`."""
    after = ""
    while True:
        keys = await store.keys(PREFIX, after=after, limit=_AT_ONCE)
        yield [key.removeprefix(PREFIX) for key in keys]
        if len(keys) < _AT_ONCE:
            return
        after = keys[-1]
