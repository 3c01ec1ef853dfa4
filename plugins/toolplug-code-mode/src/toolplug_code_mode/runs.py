"""Runs that outlive their call: those that wait for a person, and what those have made that may be lost.

Each has a record, `run/EQUAL/ID`, where `EQUAL` is a digest of what a repetition must have in common: script, caller,
agent and session. All that the script has said is sealed in it. While a process goes on with a run, it renews
`lease/ID`; without that, the run is lost, and who finds it so writes that down: a process that was only slow finds
this where it journals the next call, and makes it no more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Literal, NamedTuple, cast

from toolplug import CallContext, ProviderStore, Sealer
from toolplug.errors import StoreConflict, StoreError, Unsealable
from toolplug_code_mode.limits import (
    ANSWER_KEPT_S,
    LEASE_S,
    LOST_KEPT_S,
    MAX_EQUAL,
    RENEWED_EVERY_S,
)

State = Literal["running", "paused", "ended", "lost"]
GetSealer = Callable[[], Awaitable[Sealer]]
"""Returns what seals for the code mode. Raises `ToolError` where the host has no key."""

_JOURNAL = b"/made"
"""What the journal of a run is sealed for in addition: it is read where the run itself no longer can be."""


class RunRecord(NamedTuple):
    """What the record of a run says. `made` is its journal, sealed: the calls that may have changed something.

    `tickets`: those of all questions that it has waited for. `sealed`: the paused run, or the answer of an ended one.
    """

    state: State
    made: bytes
    tickets: Sequence[str]
    sealed: bytes

    def to_bytes(self) -> bytes:
        """Return it as it is stored."""
        head = {"state": self.state, "made": b64encode(self.made).decode(), "tickets": [*self.tickets]}
        return json.dumps(head).encode() + b"\n" + self.sealed


def _unpack(value: bytes) -> RunRecord:
    head, _, sealed = value.partition(b"\n")
    found = cast("dict[str, object]", json.loads(head))
    state, made, tickets = (found[name] for name in ("state", "made", "tickets"))
    return RunRecord(cast("State", state), b64decode(str(made)), cast("list[str]", tickets), sealed)


def equal_digest(code: str, context: CallContext, scope: str) -> str:
    """Return the digest of what two calls must have in common to be about one run.

    `scope` is that of the credentials that the caller brings, empty for none: an application may have one key for all
    its users, and who brings other credentials never gets the run of somebody else.
    """
    said = json.dumps([code, context.principal.subject, context.agent, context.session, *([scope] if scope else [])])
    return hashlib.sha256(said.encode()).hexdigest()[:40]


class Run:
    """One run with its record, as this process last read or wrote it. Its methods raise `StoreError`.

    A run has no record before its first call that may change something, or its first pause.
    """

    def __init__(self, store: ProviderStore, sealer: GetSealer, tenant: str, equal: str, run_id: str = "") -> None:
        self._store = store
        self._sealer = sealer
        self.id = run_id or token_hex(12)
        self._key = f"run/{equal}/{self.id}"
        # What is sealed is opened for this run of this tenant alone.
        self._bound = f"{tenant}/{self._key}".encode()
        self.kept = RunRecord("running", b"", (), b"")
        self._revision = 0
        self._lease: asyncio.Task[None] | None = None

    async def unseal(self) -> tuple[Mapping[str, object], bytes]:
        """Return what `pause` or `end` was given. Raises `Unsealable`, and `ToolError` where the host has no key."""
        return _unpack_sealed((await self._sealer()).unseal(self.kept.sealed, self._bound))

    async def read_journal(self) -> Sequence[str]:
        """Return the lines of the journal."""
        if not self.kept.made:
            return ()
        try:
            facts, _ = _unpack_sealed((await self._sealer()).unseal(self.kept.made, self._bound + _JOURNAL))
        except Unsealable as error:
            return (f"they cannot be read: they were {error}",)
        return cast("list[str]", facts["made"])

    async def read(self) -> RunRecord | None:
        """Read the record again; None if there is none any more."""
        record = await self._store.read(self._key)
        if record is None:
            return None
        self._revision = record.revision
        self.kept = _unpack(record.value)
        return self.kept

    async def is_leased(self) -> bool:
        """Return whether a process goes on with it."""
        return await self._store.read(f"lease/{self.id}") is not None

    async def take(self, made: Sequence[str]) -> bool:
        """Go on with a paused run; False if another call was faster."""
        await self._renew()
        try:
            await self._write(RunRecord("running", await self._seal_made(made), self.kept.tickets, b""), LOST_KEPT_S)
        except StoreConflict:
            return False
        self._begin_lease()
        return True

    async def journal(self, made: Sequence[str]) -> None:
        """Keep what is about to be made, before it is. Raises `StoreConflict` if the run counts as lost meanwhile."""
        sealed = await self._seal_made(made)
        if self._lease is None:
            await self._renew()
            self._begin_lease()
        await self._write(self.kept._replace(state="running", made=sealed), LOST_KEPT_S)

    async def lose(self) -> bool:
        """Write down that no process goes on with the run; False if one does after all."""
        try:
            await self._write(self.kept._replace(state="lost"), LOST_KEPT_S)
        except StoreConflict:
            return False
        return True

    async def pause(self, made: Sequence[str], tickets: Sequence[str], packed: bytes, ttl_s: float) -> None:
        """Keep the run while it waits for these questions, for so many seconds. `packed`: what `pack` returned."""
        every = [*dict.fromkeys([*self.kept.tickets, *tickets])]
        sealed = (await self._sealer()).seal(packed, self._bound)
        await self._write(RunRecord("paused", await self._seal_made(made), every, sealed), ttl_s)
        await self._stop_renewing()

    async def end(self, answer: Mapping[str, object]) -> None:
        """Forget the run; of one that has paused the answer stays for those that have repeated its call meanwhile."""
        if self._revision and self.kept.tickets:
            sealed = (await self._sealer()).seal(pack(answer), self._bound)
            await self._write(RunRecord("ended", b"", self.kept.tickets, sealed), ANSWER_KEPT_S)
        elif self._revision:
            await self._store.commit(self._key, None, expected=self._revision)
        await self._stop_renewing()

    async def end_lease(self) -> None:
        """Let others see at once that this process no longer goes on with a run that has neither paused nor ended."""
        if await self._stop_renewing():
            with suppress(StoreError):  # it ends by itself
                await self._store.commit(f"lease/{self.id}", None)

    async def _stop_renewing(self) -> bool:
        """Renew the lease no more: of a run that has paused or ended nobody asks for it. Return whether it was."""
        lease, self._lease = self._lease, None
        if lease is None:
            return False
        lease.cancel()
        await asyncio.gather(lease, return_exceptions=True)
        return True

    async def _write(self, kept: RunRecord, ttl_s: float) -> None:
        self._revision = await self._store.commit(self._key, kept.to_bytes(), expected=self._revision, ttl_s=ttl_s)
        self.kept = kept

    async def _seal_made(self, made: Sequence[str]) -> bytes:
        return (await self._sealer()).seal(pack({"made": [*made]}), self._bound + _JOURNAL) if made else b""

    async def _renew(self) -> None:
        await self._store.commit(f"lease/{self.id}", b"", ttl_s=LEASE_S)

    def _begin_lease(self) -> None:
        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEWED_EVERY_S)
                with suppress(StoreError):  # the next one may succeed, and nothing is lost if none does but the run
                    await self._renew()

        self._lease = asyncio.create_task(renew())


async def find_runs(store: ProviderStore, sealer: GetSealer, tenant: str, equal: str) -> list[Run]:
    """Return the runs of a script that have a record, for one caller, agent and session. Raises `StoreError`."""
    prefix = f"run/{equal}/"
    keys = await store.keys(prefix, limit=MAX_EQUAL)
    found = [Run(store, sealer, tenant, equal, key.removeprefix(prefix)) for key in keys]
    return [run for run in found if await run.read() is not None]


def pack(facts: Mapping[str, object], snapshot: bytes = b"") -> bytes:
    """Return what is sealed of a run: facts as JSON, and the bytes of the interpreter."""
    # The bytes of the interpreter are five times as long as their content.
    return zlib.compress(json.dumps(facts).encode() + b"\n" + snapshot, 1)


def _unpack_sealed(opened: bytes) -> tuple[Mapping[str, object], bytes]:
    head, _, snapshot = zlib.decompress(opened).partition(b"\n")
    return cast("dict[str, object]", json.loads(head)), snapshot
