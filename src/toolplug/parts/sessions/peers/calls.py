"""Relayed calls as records, so that any process can deliver a call and take its answer.

A call has two volatile records, each written once: `~call/CODE/ID` by the process of its caller before it is delivered,
and `~call/CODE/ID/end` by the first process that ends it: with the plugin's answer, or with why it is too late.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import orjson

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.cluster.processes import Processes
from toolplug.errors import StoreConflict
from toolplug.stores.store import VOLATILE, Store, every_key

CALLS = f"{VOLATILE}call/"
_END = "/end"
_AFTER_DEADLINE_S = 5.0
_ENDED_S = 60.0
"""Seconds after a call's deadline for which a second answer is rejected with the reason."""
_END_LONGER_S = 10.0
"""An end is kept for so many seconds longer than its call, which would be a waiting one without it: clocks differ."""


class StoredCall(NamedTuple):
    """A call as its record has it. `arguments` is JSON; `caller` is the name of the process that waits for its end.

    `deadline` is in seconds on the store's clock. A `queued` call goes on when its process has ended: another runs it.
    `trace` is the trace context of the caller. `turn` is that of the first stream of the plugin that it may have been
    sent on (`StoredPresence`), None if unknown.
    """

    tool: str
    arguments: bytes
    deadline: float
    call_id: str
    request_id: str
    trace: dict[str, str]
    caller: str
    queued: bool
    turn: int | None = None


class CallEnd(NamedTuple):
    """How a call has ended: with the plugin's value or `ToolResult`, or too late for one, for this reason."""

    value: object
    late: str | None = None


class RecordedProgress(NamedTuple):
    """A plugin's report of progress."""

    progress: float
    total: float | None
    message: str | None


class _KeptEnd(TypedDict):
    late: NotRequired[str]
    error: NotRequired[str]


class CallRecords:
    """The records of relayed calls in a store that several processes share."""

    def __init__(self, store: Store, processes: Processes) -> None:
        self._store = store
        self._processes = processes

    async def publish(self, code: str, call_id: str, call: StoredCall) -> None:
        """Write a call, in place of one that a process has begun which runs no more. Raises `StoreError`.

        A call that is long over is not written again, since it could outlive its end.
        """
        ttl_s = call.deadline - self._store.now() + _ENDED_S
        if ttl_s <= 0:
            return
        head = {name: value for name, value in call._asdict().items() if name != "arguments"}
        # The arguments as they are: no process on the way decodes them.
        value = orjson.dumps(head) + b"\n" + call.arguments
        await self._store.commit(_key(code, call_id), value, ttl_s=ttl_s)

    async def read(self, code: str, call_id: str) -> StoredCall | None:
        """Return a call; None if there is none of this id. Raises `StoreError`."""
        record = await self._store.read(_key(code, call_id))
        return None if record is None else read_call(record.value)

    async def waiting(self, code: str) -> list[str]:
        """Return the ids of a session's calls without an end. Raises `StoreError`."""
        prefix = f"{CALLS}{code}/"
        # One walk over the keys: whether a call has ended is in them, and no record is read.
        found = [key async for key in every_key(self._store, prefix)]
        ended = {key.removesuffix(_END) for key in found if key.endswith(_END)}
        return [key.removeprefix(prefix) for key in found if key not in ended and not key.endswith(_END)]

    async def end(self, code: str, call_id: str, end: CallEnd, deadline: float) -> CallEnd:
        """End a call, and return how it has ended: this one, unless another came first. Raises `StoreError`."""
        key = _key(code, call_id) + _END
        value = _end_bytes(end)
        while True:
            ttl_s = self._left(deadline) + _ENDED_S + _END_LONGER_S
            try:
                await self._store.commit(key, value, expected=0, ttl_s=ttl_s)
            except StoreConflict:
                earlier = await self.end_of(code, call_id)
                if earlier is None:
                    continue  # it has expired in between
                return earlier
            return end

    async def end_of(self, code: str, call_id: str) -> CallEnd | None:
        """Return how a call has ended; None if it has not, or is forgotten. Raises `StoreError`."""
        record = await self._store.read(_key(code, call_id) + _END)
        return None if record is None else read_end(record.value)

    async def report(self, code: str, call_id: str, caller: str, progress: RecordedProgress) -> None:
        """Pass progress on to the caller's process. Raises `StoreError`."""
        store_id = caller.partition(".")[0]
        await self._store.extend(_key(code, call_id), events=[orjson.dumps([*progress])], to=store_id)

    @property
    def caller(self) -> str:
        """The name of this process, for the calls of its own callers."""
        return self._processes.name

    @property
    def valid(self) -> bool:
        """True while this process may send requests: its lease has not lapsed."""
        return self._processes.valid

    def is_orphaned(self, caller: str | None, deadline: float) -> bool:
        """Return True if nobody waits for a call: the process of this caller has ended, or the deadline has passed."""
        ended = caller is not None and not self._processes.runs(caller)
        return ended or self._left(deadline) < -_AFTER_DEADLINE_S

    def _left(self, deadline: float) -> float:
        return max(deadline - self._store.now(), -2 * _AFTER_DEADLINE_S)


def read_key(key: str) -> tuple[str, str, bool]:
    """Return the session code and the id that a key names, and whether it is that of the call's end."""
    code, _, rest = key.removeprefix(CALLS).partition("/")
    call_id, slash, _ = rest.partition("/")
    return code, call_id, bool(slash)


def read_call(value: bytes) -> StoredCall:
    """Return the call that `publish` has written."""
    head, _, arguments = value.partition(b"\n")
    kept: dict[str, Any] = orjson.loads(head)
    # A later version may have more fields: during a rolling update its records are read here.
    return StoredCall(arguments=arguments, **{name: kept[name] for name in StoredCall._fields if name in kept})


def read_progress(data: bytes) -> RecordedProgress:
    """Return the progress that `report` has written."""
    return RecordedProgress(*orjson.loads(data))


def _end_bytes(end: CallEnd) -> bytes:
    if end.late is not None:
        return orjson.dumps({"late": end.late}) + b"\nnull"
    if isinstance(end.value, ToolResult):
        return orjson.dumps({"error": end.value.output}) + b"\nnull"
    return b"{}\n" + dump_json(end.value)


def read_end(value: bytes) -> CallEnd:
    """Return the end that `CallRecords.end` has written."""
    head, _, answer = value.partition(b"\n")
    kept = cast("_KeptEnd", orjson.loads(head))
    if "late" in kept:
        return CallEnd(None, kept["late"])
    if "error" in kept:
        return CallEnd(ToolResult(output=kept["error"], status=ToolStatus.TOOL_ERROR))
    return CallEnd(load_json(answer))


def _key(code: str, call_id: str) -> str:
    return f"{CALLS}{code}/{call_id}"
