"""The sessions that all processes have created lately, so that quotas of sessions are exact.

A process looks at all sessions of the store every ten seconds only. So each session that a quota counts first takes a
place in a volatile record of the quota's owner, the list of the owner's new sessions, which is written only if no other
process has written it since it was read. A process counts the sessions of that list in addition to those it knows, so
that no two processes take the last place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import TypeAdapter

from toolplug.errors import StoreConflict
from toolplug.host.quotas.settings import Owner
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.stores.store import VOLATILE, Store, name_digest

KEPT_S = 30.0
"""Seconds for which a session is new: the ten between two looks, a look, and the commit of a slow store."""


class NewSession(NamedTuple):
    """A session that lives `ttl_s` without a sign, and when it was added, in seconds on the store's clock."""

    code: str
    tenant: str
    subject: str
    ttl_s: float
    at: float = 0.0


_PLACES = TypeAdapter(list[NewSession])


class NewSessions:
    """The lists of new sessions in the store.

    `lives(code)` loads a session: True if it lives, False if it is over, None if it has no record that can be read.
    """

    def __init__(self, store: Store, lives: Callable[[str], Awaitable[bool | None]]) -> None:
        self._store = store
        self._lives = lives
        # One writer a process, so that the requests of a burst do not make each other try again.
        self._writing = KeyedLocks[Owner]()

    async def add(self, owner: Owner, new: NewSession, check: Callable[[Counter[Owner]], None]) -> None:
        """Take a place now for a session that is stored next. Raises `StoreError`.

        `check` is called when all other new sessions of the owner are loaded, with the number, by owner, of those that
        are not stored yet; nothing is written if it raises. It is called again after a concurrent change.

        The place of a session that is not stored after all is free again after `KEPT_S`.
        """
        key = _key(owner)
        async with self._writing.of(owner):
            while True:
                record = await self._store.read(key)
                places, unstored = await self._look([] if record is None else _PLACES.validate_json(record.value))
                check(unstored)
                try:
                    await self._store.commit(
                        key,
                        _PLACES.dump_json([*places, new._replace(at=self._store.now())]),
                        expected=0 if record is None else record.revision,
                        ttl_s=KEPT_S,
                        to=self._store.id,  # nobody follows it
                    )
                except StoreConflict:
                    continue
                return

    async def _look(self, places: list[NewSession]) -> tuple[list[NewSession], Counter[Owner]]:
        """Return the places that are still in use, and the number of those without a stored session by owner."""
        now = self._store.now()
        used, unstored = list[NewSession](), Counter[Owner]()
        for place in places:
            lives = await self._lives(place.code) if now < place.at + KEPT_S else False
            if lives is None and now < place.at + min(place.ttl_s, KEPT_S):
                unstored.update([(place.tenant,), (place.tenant, place.subject)])
            elif not lives:
                continue
            used.append(place)
        return used, unstored


def _key(owner: Owner) -> str:
    """Return the key of an owner's list: a hash, as names may be any text."""
    return f"{VOLATILE}new-sessions/{name_digest(*owner)[:32]}"
