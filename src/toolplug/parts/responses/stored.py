"""Stored responses by tenant, with their input."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple, Self, cast

from toolplug.catalog.call import EMPTY, Principal
from toolplug.catalog.definition import HostedItem
from toolplug.catalog.exact_json import as_object, dump_json, load_json, load_own_json
from toolplug.errors import InvalidJson, ResponseRefused, StoreConflict, StoreError
from toolplug.parts.responses.builder import FINAL, ResponseAnswer, ResponseBuilder, response_id, whole_items
from toolplug.parts.responses.items.healing import History, Record, answered_responses, make_record, responses_in
from toolplug.parts.responses.items.hosted import hide_fields
from toolplug.parts.responses.limits import (
    HEAL_S,
    MAX_CHAIN,
    MAX_HEALED_IN_ALL,
    MAX_HEALED_RESPONSES,
    MAX_HEALED_SOUGHT,
)
from toolplug.parts.responses.request import Item, parts_of, response_key_of
from toolplug.stores.store import Store, tenant_digest

_LOG = logging.getLogger("toolplug.responses")
_ID = re.compile(r"resp_[0-9a-f]{32}")
CIPHERS = "cryptography.hazmat.primitives.ciphers.aead"
"""Imported when the first record is sealed: a fifth of a second that a host without a model does not need."""
_NONCE_BYTES = 12
"""What AES-GCM takes; at random, as each key seals one record, a few times at most."""

_LEFT_OUT = {"tool_list", "scope"}
"""Fields that a record has only where they are not empty, as in those of older versions."""


class StoredResponse(NamedTuple):
    """A response as stored.

    `conversation` is equal for responses that continue each other; `hidden` are items with hidden fields by id, with
    how they are shown without them; `subject` is the creator; `tool_list` is what the model was told of its tools,
    where their list stays; `scope` is that of the credentials which the creator has brought.
    """

    response: ResponseAnswer
    sent: Sequence[Item]
    conversation: str
    hidden: Mapping[str, object]
    subject: str = ""
    tool_list: Mapping[str, object] = EMPTY
    scope: str = ""

    def include_fields(self, include: Collection[str]) -> ResponseAnswer:
        """Return the response with the hidden fields that `include` names."""
        if not self.hidden or not include:
            return self.response
        return {**self.response, "output": [self._show(item, include) for item in self.response["output"]]}

    def _show(self, item: Item, include: Collection[str]) -> Item:
        kept = as_object(self.hidden.get(str(item.get("id"))))
        if not kept:
            return item
        whole, paths = as_object(kept["item"]), cast("list[str]", kept["on_include"])
        shape = HostedItem(str(whole["type"]), fields=as_object(kept["fields"]), on_include=tuple(paths))
        return hide_fields(whole, shape, include)

    @property
    def is_over(self) -> bool:
        return self.response["status"] in FINAL

    @property
    def items(self) -> list[Item]:
        """The input and output items, with hidden fields."""
        return [*self.sent, *whole_items(self.response["output"], self.hidden)]


class _Found(NamedTuple):
    kept: StoredResponse
    revision: int


class StoredResponses:
    """The stored responses of one host. Each method may raise `StoreError`."""

    def __init__(self, store: Store, ttl_s: float) -> None:
        self.store: Store = store
        self._maker = ""
        self._only: str | None = None
        self._scope: str | None = None
        self.ttl_s: float = ttl_s
        self.heal_s: float = HEAL_S

    def of(self, principal: Principal, scope: str) -> Self:
        """Return the responses of this caller; a credential with agents is limited to those of its subject.

        Each caller is limited to its `scope`, that of the credentials that it brings.
        """
        own = copy(self)
        own._maker, own._scope = principal.subject, scope
        own._only = None if principal.agents is None else principal.subject
        return own

    async def keep(self, tenant: str, kept: StoredResponse, *, expected: int | None = None) -> int:
        """Store a response, return its revision. Raises `StoreConflict` unless the last was `expected`, 0 for none."""
        if not kept.subject:
            kept = kept._replace(subject=self._maker, scope=self._scope or "")
        fields = {name: each for name, each in kept._asdict().items() if each or name not in _LEFT_OUT}
        key, value = _key(tenant, str(kept.response["id"])), dump_json(fields)
        return await self.store.commit(key, value, expected=expected, ttl_s=self.ttl_s)

    async def read(self, tenant: str, response: str) -> StoredResponse:
        """Return a response. Raises `ResponseRefused` if the tenant has none of this id."""
        return (await self._there(tenant, response)).kept

    async def unfinished_revision(self, tenant: str, response: str) -> int | None:
        """Return the revision of a response in progress; None if it has ended or does not exist."""
        found = await self._find(tenant, response)
        return None if found is None or found.kept.is_over else found.revision

    async def status(self, tenant: str, response: str) -> str | None:
        """Return the status of a response; None if it does not exist."""
        found = await self._find(tenant, response)
        return None if found is None else found.kept.response["status"]

    async def end(self, tenant: str, response: str, how: Mapping[str, object]) -> StoredResponse:
        """End a response in progress with these fields, and return what is stored then.

        Raises `ResponseRefused` if the tenant has none of this id.
        """
        while True:
            found = await self._there(tenant, response)
            if found.kept.is_over:
                return found.kept
            ended = found.kept._replace(response=cast("ResponseAnswer", {**found.kept.response, **how}))
            with suppress(StoreConflict):
                await self.keep(tenant, ended, expected=found.revision)
                return ended

    async def delete(self, tenant: str, response: str) -> None:
        """Delete a response. Raises `ResponseRefused` if the tenant has none of this id."""
        await self.read(tenant, response)
        await self.store.commit(_key(tenant, response), None)
        await self.store.commit(_healing_key(tenant, response.removeprefix(response_id(""))), None)
        await self.store.commit(events_key(tenant, response), None)

    async def keep_for_healing(self, tenant: str, draft: ResponseBuilder, *, stored: bool) -> None:
        """Keep what a client may leave out of the history that it sends back; it is kept as long as a stored response.

        It is sealed: only who has the id of the response, or of one of its calls, can open it. The store has no id of a
        response that is not stored. Failures are logged.
        """
        if not self.heal_s or (record := make_record(draft.items)) is None:
            return
        value = self._get_seal(tenant, draft.key).seal(dump_json(record))
        ttl_s = self.ttl_s if stored else self.heal_s
        try:
            await self.store.commit(_healing_key(tenant, draft.key), value, ttl_s=ttl_s)
        except StoreError as error:
            _LOG.error("hosted calls are not kept for a client that may drop them: %s", error)

    async def forget_for_healing(self, tenant: str, response: str) -> bool:
        """Forget what `keep_for_healing` has kept of a response. Return whether there was anything of this caller's."""
        if not _ID.fullmatch(response):
            return False
        key = response.removeprefix(response_id(""))
        if (await self._read_record(tenant, key))[0] is None:
            return False
        await self.store.commit(_healing_key(tenant, key), None)
        return True

    async def forget_deleted(self, tenant: str, response: str) -> None:
        """Forget what is kept of a response that was deleted while it was made. Failures are logged."""
        try:
            if await self.status(tenant, response) is None:
                await self.forget_for_healing(tenant, response)
        except StoreError as error:
            _LOG.error("hosted calls of a deleted response are not forgotten: %s", error)

    async def heal(self, tenant: str, history: Sequence[Item], sent: Sequence[Item]) -> Sequence[Item]:
        """Return the items of a request with the hosted ones that its client has left out.

        Only responses of the same caller count whose client's calls are answered here; none of `history`, which has
        its items already. What the store cannot read now is not added, which the log says.
        """
        answered = answered_responses(sent) if self.heal_s else []
        if not answered:
            return sent
        known = responses_in(history)
        try:
            records = await self._read_records(tenant, [key for key in answered if key not in known])
        except StoreError as error:
            _LOG.error("a history stays as it was sent, without hosted calls: %s", error)
            return sent
        healed = History(sent)
        for key in answered:
            if key in records:
                healed.heal(key, records[key])
                await asyncio.sleep(0)  # others run between two large ones
        return healed.items if records else sent

    async def _read_records(self, tenant: str, keys: Sequence[str]) -> dict[str, Record]:
        """Return what is kept of the newest of these responses."""
        sought = {key: _healing_key(tenant, key) for key in keys[-MAX_HEALED_SOUGHT:]}
        there = await self.store.revisions(sought.values()) if sought else {}
        kept = [key for key, name in sought.items() if there.get(name)]
        records: dict[str, Record] = {}
        left = MAX_HEALED_IN_ALL
        for key in reversed(kept[-MAX_HEALED_RESPONSES:]):
            record, size = await self._read_record(tenant, key)
            left -= size
            if left < 0:
                break
            if record is not None:
                records[key] = record
        return records

    async def _read_record(self, tenant: str, key: str) -> tuple[Record | None, int]:
        """Return what is kept of a response of this caller, None if there is nothing, and its size in bytes."""
        record = await self.store.read(_healing_key(tenant, key))
        if record is None:
            return None, 0
        opened = self._get_seal(tenant, key).open(record.value)
        return None if opened is None else cast("Record", load_own_json(opened)), len(record.value)

    def _get_seal(self, tenant: str, key: str) -> _SealedRecord:
        return _SealedRecord.of(tenant, self._maker, self._scope or "", key)

    async def conversation(self, tenant: str, previous: str) -> list[StoredResponse]:
        """Return a response and those that it continues, the oldest first, as far as they are still stored.

        Raises `ResponseRefused` if the response itself is not stored.
        """
        chain: list[StoredResponse] = []
        wanted: object = previous
        while isinstance(wanted, str) and len(chain) < MAX_CHAIN:
            found = await self._find(tenant, wanted)
            if found is None:
                break
            chain.append(found.kept)
            wanted = found.kept.response["previous_response_id"]
        if not chain:
            message = f"there is no response {previous!r} to continue, or it has expired"
            raise ResponseRefused("previous_response_not_found", message, param="previous_response_id")
        return chain[::-1]

    async def item(self, tenant: str, item_id: str) -> Item | None:
        """Return the item of this id in the response that the id names; None if there is none."""
        key = response_key_of(item_id)
        found = None if key is None else await self._find(tenant, response_id(key))
        for item in found.kept.items if found else ():
            if item.get("id") == item_id:
                return item
        return None

    async def _there(self, tenant: str, response: str) -> _Found:
        found = await self._find(tenant, response)
        if found is None:
            raise ResponseRefused("response_not_found", "no such response, or it has expired", param="id")
        return found

    async def _find(self, tenant: str, response: str) -> _Found | None:
        if not _ID.fullmatch(response):
            return None
        record = await self.store.read(_key(tenant, response))
        if record is None:
            return None
        try:
            kept = StoredResponse(**cast("dict[str, Any]", load_json(record.value)))
        except (InvalidJson, TypeError):
            _LOG.error("response %s cannot be read: it counts as none, and expires by itself", response)
            return None
        is_own = self._only in (None, kept.subject) and self._scope in (None, kept.scope)
        return _Found(kept, record.revision) if is_own else None


def with_ids(items: Sequence[Item], key: str) -> list[Item]:
    """Return the input items with ids; our own stay, as does that of an approval request, which its answer repeats."""
    return [item if _keeps_id(item) else {**item, "id": f"in_{key}i{number:03x}"} for number, item in enumerate(items)]


def _keeps_id(item: Item) -> bool:
    return item.get("type") == "mcp_approval_request" or response_key_of(str(item.get("id"))) is not None


def as_listed(item: Item) -> Item:
    """Return an item as listings show it: with hidden fields, and its content as parts."""
    shown: dict[str, object] = {"status": "completed", **item}
    if item.get("type") == "message":
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        shown["content"] = [_part(part, kind) for part in parts_of(item["content"])]
    return shown


def _part(part: Mapping[str, object], kind: str) -> Mapping[str, object]:
    if part.get("type") == "input_text" and kind == "output_text":
        part = {**part, "type": kind}
    return {"annotations": [], **part} if part.get("type") == "output_text" else part


def _key(tenant: str, response: str) -> str:
    return f"response/{tenant_digest(tenant)}/{response}"


def _healing_key(tenant: str, key: str) -> str:
    """Return the key of the record of a response; it does not say the response's own key, which opens the record."""
    return f"response-healing/{tenant_digest(tenant)}/{_derive('name', key).hex()[:32]}"


def _derive(use: str, key: str) -> bytes:
    """Return 32 bytes for one use of a response's key, which has 128 random bits."""
    return sha256(f"toolplug healing {use}\0{key}".encode()).digest()


class _SealedRecord(NamedTuple):
    """How the record of a response is sealed: with a key made of the response's own, for one tenant and caller."""

    key: bytes
    caller: bytes

    @classmethod
    def of(cls, tenant: str, subject: str, scope: str, key: str) -> Self:
        caller = f"{tenant_digest(tenant)}/{subject}{f'/{scope}' if scope else ''}"
        return cls(_derive("seal", key), caller.encode())

    def seal(self, text: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + import_module(CIPHERS).AESGCM(self.key).encrypt(nonce, text, self.caller)

    def open(self, sealed: bytes) -> bytes | None:
        """Return what is sealed; None if it is another caller's."""
        try:
            cipher = import_module(CIPHERS).AESGCM(self.key)
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self.caller)
        except import_module("cryptography.exceptions").InvalidTag:
            return None


def events_key(tenant: str, response: str) -> str:
    """Return the key of the record of a background response's events."""
    return f"response-events/{tenant_digest(tenant)}/{response}"
