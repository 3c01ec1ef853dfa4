"""Tasks in the store of the host, where every process finds them.

A key has the tenant and the subject of the caller: the id of a task is of use to nobody else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from secrets import token_hex
from typing import Any, NamedTuple, TypedDict, cast

from toolplug import Principal
from toolplug.catalog import dump_json, load_json
from toolplug.errors import InvalidJson, StoreConflict
from toolplug.runtime import KeyedLocks
from toolplug.stores import Store, tenant_digest

PREFIX = "tasks/"
KEPT_S = 3_600.0
"""Seconds for which a task is kept after its end: a client that was away for lunch finds it."""
MAX_TASKS = 100
"""Of one caller, those included that have ended and are kept: each may have a result of a mebibyte."""
POLL_MS = 1_000
"""What clients are asked to wait between two questions; progress is written as often."""

FINAL = frozenset({"completed", "failed", "cancelled"})
_ID = re.compile(r"task_[0-9a-f]{32}")
_LOG = logging.getLogger("toolplug.tasks")

Task = dict[str, Any]
"""A task as the protocol has it."""


class StoredTask(TypedDict):
    """A task, the process that runs it, what its user has answered, and when it is forgotten (on the store's clock)."""

    task: Task
    owner: str
    answers: dict[str, Any]
    until: float


class _Found(NamedTuple):
    stored: StoredTask
    revision: int


class TaskOwner(NamedTuple):
    """Whose a task is: a caller, and the scope of the credentials that it brings, empty for none.

    An application may have one API key for all its users: who brings other credentials has no task of somebody else.
    """

    caller: Principal
    scope: str = ""


def _keys_of(caller: Principal) -> str:
    """Return what the keys of all tasks of a caller begin with, whatever credentials it brings."""
    return f"{PREFIX}{tenant_digest(caller.tenant)}/{sha256(caller.subject.encode()).hexdigest()[:32]}/"


def _task_key(owner: TaskOwner, task_id: str) -> str:
    scope = f"{sha256(owner.scope.encode()).hexdigest()[:32]}." if owner.scope else ""
    return f"{_keys_of(owner.caller)}{scope}{task_id}"


def key_of_id(owner: TaskOwner, task_id: object) -> str | None:
    """Return the key that an owner's task of this id has; None for what is no id."""
    return _task_key(owner, task_id) if isinstance(task_id, str) and _ID.fullmatch(task_id) else None


class TaskRecords:
    """The tasks of one store. Every method may raise `StoreError`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._adding: KeyedLocks[str] = KeyedLocks()

    async def add(self, whose: TaskOwner, owner: str, message: str, timeout_s: float) -> tuple[str, StoredTask] | None:
        """Keep a new task that the process `owner` runs, and return its key and what is kept.

        None if the caller has as many as it may have.
        """
        before = _keys_of(whose.caller)
        # A caller's calls become tasks one by one: all at once would count none of each other.
        async with self._adding.of(before):
            if len(await self._store.keys(before, limit=MAX_TASKS)) >= MAX_TASKS:
                return None
            return await self._add(whose, owner, message, timeout_s)

    async def _add(self, whose: TaskOwner, owner: str, message: str, timeout_s: float) -> tuple[str, StoredTask]:
        now = self._store.now()
        task: Task = {
            "taskId": f"task_{token_hex(16)}",
            "status": "working",
            "createdAt": _time_text(now),
            "lastUpdatedAt": _time_text(now),
            "ttlMs": round((timeout_s + KEPT_S) * 1000),
            "pollIntervalMs": POLL_MS,
        }
        if message:
            task["statusMessage"] = message
        key = _task_key(whose, task["taskId"])
        stored: StoredTask = {"task": task, "owner": owner, "answers": {}, "until": now + timeout_s + KEPT_S}
        await self._write(key, stored, 0)
        return key, stored

    async def find(self, key: str) -> StoredTask | None:
        """Return a task; None if there is none."""
        found = await self._find(key)
        return None if found is None else found.stored

    async def find_of(self, owner: TaskOwner, task_id: object) -> tuple[str, StoredTask] | None:
        """Return the key and the task of this id, if it is the owner's; None for any other text."""
        key = key_of_id(owner, task_id)
        stored = None if key is None else await self.find(key)
        return None if key is None or stored is None else (key, stored)

    async def change(self, key: str, change: Callable[[StoredTask], bool]) -> StoredTask | None:
        """Change a task, of which its process hears, and return it as it is then; None if there is none.

        change: changes what it is given, and returns False to leave it. It is called again if another was faster.
        """
        while True:
            found = await self._find(key)
            if found is None or not change(found.stored):
                return None if found is None else found.stored
            found.stored["task"]["lastUpdatedAt"] = _time_text(self._store.now())
            try:
                await self._write(key, found.stored, found.revision)
            except StoreConflict:
                continue
            return found.stored

    def end(self, stored: StoredTask, **fields: object) -> bool:
        """End a task with these fields, for `change`; return False if it has ended."""
        task = stored["task"]
        if task["status"] in FINAL:
            return False
        for gone in ("inputRequests", "statusMessage"):
            task.pop(gone, None)
        now = self._store.now()
        began = datetime.fromisoformat(task["createdAt"]).timestamp()
        task |= {**fields, "ttlMs": round((now - began + KEPT_S) * 1000)}
        stored["answers"], stored["until"] = {}, now + KEPT_S
        return True

    async def delete(self, key: str, stored: StoredTask) -> None:
        """Forget a task, of which its process hears."""
        await self._store.commit(key, None, to=_store_of(stored["owner"]))

    async def _find(self, key: str) -> _Found | None:
        record = await self._store.read(key)
        if record is None:
            return None
        try:
            return _Found(cast("StoredTask", load_json(record.value)), record.revision)
        except InvalidJson:
            _LOG.error("a task cannot be read: it counts as none, and expires by itself")
            return None

    async def _write(self, key: str, stored: StoredTask, expected: int) -> None:
        # The least that a store takes: it was forgotten a moment ago, and nobody asks for it again.
        ttl_s = max(stored["until"] - self._store.now(), 1.0)
        to = _store_of(stored["owner"])
        await self._store.commit(key, dump_json(stored), expected=expected, ttl_s=ttl_s, to=to)


def _store_of(owner: str) -> str:
    """Return the id of the store object of a process, with which its name begins."""
    return owner.partition(".")[0]


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
