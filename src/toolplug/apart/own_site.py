"""The context of a provider in its own process: what of it the host has is asked for through the socket."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn, cast

from pluggy import PluginManager

from toolplug.apart.frames import NOTE, Answer, Peer
from toolplug.apart.values import Head, whole_result
from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult
from toolplug.catalog.exact_json import dump_json
from toolplug.errors import ProviderError, StoreMisused
from toolplug.net.egress import Egress
from toolplug.providers.entry import ProviderState
from toolplug.providers.site import CallHookSwitch, ProviderContext, ProviderStore, thread_pool
from toolplug.stores.store import Record

current_work: ContextVar[tuple[int, str] | None] = ContextVar("toolplug_apart_work", default=None)
"""The number of the call or request that runs, with its tenant; None outside of one."""


def refuse(entry_owner: str, what: str) -> ProviderError:
    """Return the error of a provider that needs what cannot cross a process."""
    return ProviderError(
        f"{entry_owner}: {what} cannot be used from a process of its own",
        state=ProviderState.INCOMPATIBLE,
        fix="remove run from its entry, so that it runs in the host's process",
    )


class _NotApart:
    """Stands for a service of the host that cannot cross a process: every use says so."""

    def __init__(self, owner: str, what: str) -> None:
        self.__dict__.update(_owner=owner, _what=what)

    def __getattr__(self, name: str) -> NoReturn:
        raise refuse(self.__dict__["_owner"], self.__dict__["_what"])

    def __call__(self, *given: object) -> NoReturn:
        raise refuse(self.__dict__["_owner"], self.__dict__["_what"])


def host_site(peer: Peer, owner: str, key: str, given: Head) -> ProviderContext:
    """Return the context of a provider whose host has sent these values of it."""
    return ProviderContext(
        key=key,
        state_dir=Path(given["state_dir"]),
        store=lambda principal: _HostStore(peer, principal),
        config_dir=Path(given["config_dir"]),
        service=cast("Any", _NotApart(owner, "site.service")),
        egress=Egress(tuple(given["egress"])),
        log=logging.getLogger(f"toolplug.providers.{key}"),
        plugins=cast("PluginManager", _NotApart(owner, "site.plugins")),
        sealing=cast("Any", _NotApart(owner, "site.sealer")),
        call_hooks=_HostSwitch(peer),
        threads=thread_pool(key),
    )


class _HostTools(_NotApart):
    """The tools of the caller of a call that runs, for calls of them; the host has their list."""

    def __init__(self, peer: Peer, owner: str, number: int) -> None:
        super().__init__(owner, "the list of context.tools")
        self.__dict__.update(_peer=peer, _number=number)

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Make a call as the caller of the call that runs, whatever the context says."""
        peer, given = self.__dict__["_peer"], call.arguments
        text = dump_json(given) if isinstance(given, Mapping) else given.encode() if isinstance(given, str) else given
        head = {"work": self.__dict__["_number"], "call_id": call.id, "name": call.name}
        found, output = await peer.ask("tool", head, text)
        return whole_result({**found, "output": output.decode()}, call)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        context: CallContext | None = None,
        /,
        **named: object,
    ) -> ToolResult:
        return await self.execute(ToolCall("call", name, {**(arguments or {}), **named}))


def host_tools(peer: Peer, owner: str, number: int) -> Any:
    """Return what calls the tools of the caller of the call of this number."""
    return _HostTools(peer, owner, number)


class _HostSwitch(CallHookSwitch):
    """Switches the hooks around calls in the host."""

    __slots__ = ("_peer",)

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def set(self, on: bool) -> None:
        """Switch them on or off."""
        if on is not self.on:
            self.on = on
            self._peer.send(NOTE, {"note": "call_hooks", "on": on})


class _HostStore:
    """The records of one tenant, in the host's store."""

    def __init__(self, peer: Peer, principal: Principal) -> None:
        self._peer = peer
        self._tenant = principal.tenant

    async def read(self, key: str) -> Record | None:
        """Return the record, or `None`."""
        found, value = await self._ask({"do": "read", "key": key})
        if found["revision"] is None:
            return None
        return Record(
            value=value,
            revision=found["revision"],
            expires_at=found["expires_at"],
            position=found["position"],
        )

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        if value is not None and len(value) > self._peer.reader.max_bytes - 4096:
            most = self._peer.reader.max_bytes - 4096
            raise StoreMisused(f"a value of {len(value)} bytes; from a process of its own {most} are allowed")
        head = {"do": "commit", "key": key, "expected": expected, "ttl_s": ttl_s, "delete": value is None}
        return (await self._ask(head, value or b""))[0]["revision"]

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys that begin with `prefix` and follow `after`, in code-point order."""
        return (await self._ask({"do": "keys", "prefix": prefix, "after": after, "limit": limit}))[0]["keys"]

    async def _ask(self, head: Mapping[str, object], value: bytes = b"") -> tuple[Head, bytes]:
        work = current_work.get()
        # Of another tenant than the call's: that is asked for outside of the call, for which the host has its rule.
        number = work[0] if work is not None and work[1] == self._tenant else None
        return await self._peer.ask("store", {**head, "tenant": self._tenant, "work": number}, value)


async def answer_store(store: ProviderStore, asked: Head, value: bytes, max_bytes: int) -> Answer:
    """Do in the host what a process asks of one tenant's records. Raises `StoreError`."""
    match asked["do"]:
        case "read":
            record = await store.read(str(asked["key"]))
            if record is None:
                return {"revision": None}, b""
            if len(record.value) > max_bytes - 4096:
                raise StoreMisused(f"the record has {len(record.value)} bytes, more than a process of its own is sent")
            head = {"revision": record.revision, "expires_at": record.expires_at, "position": record.position}
            return head, record.value
        case "commit":
            expected, ttl_s = asked["expected"], asked["ttl_s"]
            given = None if asked["delete"] else value
            return {"revision": await store.commit(str(asked["key"]), given, expected=expected, ttl_s=ttl_s)}, b""
        case _:
            limit = min(int(asked["limit"]), 1000)
            keys = await store.keys(str(asked["prefix"]), after=str(asked["after"]), limit=limit)
            return {"keys": keys}, b""
