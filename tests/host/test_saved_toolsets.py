"""Saved toolsets of a running host: what is equipped, by whom, and who sees it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import ValidationError
from tests.host.conftest import Package

from toolplug import CallContext, Caller, Host, Note, Principal, ToolCall, ToolReference, open_host
from toolplug.catalog.catalog import CatalogDiff
from toolplug.errors import ApiError, ConfigError, StoreUnavailable
from toolplug.host.file.store_entry import ConfiguredStore
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import DelegatingStore, Store
from toolplug.testing.executor_laws import check_executor
from toolplug.toolsets.saved.document import Document
from toolplug.toolsets.saved.saved_toolset import ref_id

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("desk_package")]

DESK = """
    from toolplug import FunctionProvider, tool

    class DeskProvider(FunctionProvider):
        @tool
        async def read(self) -> str:
            "Read the page."
            return "read"

        @tool
        async def write(self, text: str) -> str:
            "Write the page."
            return text

        @tool
        async def burn(self) -> str:
            return "burnt"
"""
FILE = """
    providers:
      desk: {enabled: true, tools: {burn: {tenants: [t2]}}}
      files: {enabled: true, type: desk}
    toolsets:
      d: {prefix: d, from: provider:desk}
    agents: {clerk: {toolsets: [d]}}
"""
SCOPES = frozenset({"tools:read", "tools:call", "sessions:write"})
ANN = Caller(Principal(subject="ann", tenant="t1", scopes=SCOPES))
BOB = Caller(Principal(subject="bob", tenant="t1", scopes=SCOPES))
OTHER_ANN = Caller(Principal(subject="ann", tenant="t2", scopes=SCOPES))
Write = Callable[[str], Path]


@pytest.fixture
def desk_package(package: Package) -> None:
    package("toolplug-desk", {"desk": "desk_mod:DeskProvider"}, desk_mod=DESK)


@pytest.fixture
async def host(config: Write) -> AsyncIterator[Host]:
    async with open_host(config(FILE), environ={}) as opened:
        yield opened


def named(*names: str) -> list[ToolReference]:
    return [ToolReference(name) for name in names]


def listed(host: Host, caller: Caller) -> list[str]:
    return list(host.executor_for(caller.principal, agent=caller.agent, session=caller.session).catalog)


async def run(host: Host, caller: Caller, name: str, **arguments: object) -> str:
    executor = host.executor_for(caller.principal, agent=caller.agent, session=caller.session)
    context = CallContext(principal=caller.principal, agent=caller.agent, session=caller.session)
    result = await executor.execute(ToolCall("c", name, arguments), context)
    return f"{result.status}: {result.output}"


@pytest.mark.requirement("C-7-saved-equipped", "C-7-saved-owner")
async def test_what_is_equipped_is_its_owners_catalog_and_nobody_elses(host: Host) -> None:
    everything = ["read", "write"]
    assert listed(host, ANN) == everything
    in_use = host.executor_for(ANN.principal)
    heard: list[CatalogDiff] = []
    in_use.subscribe(heard.append)
    await host.saved_toolsets.build(ANN, "one-tool", named("write"))
    assert list(in_use.catalog) == everything
    await host.saved_toolsets.equip(ANN, "one-tool")
    assert listed(host, ANN) == list(in_use.catalog) == ["write"]
    assert [listed(host, caller) for caller in (BOB, OTHER_ANN)] == [everything, [*everything, "burn"]]
    assert await run(host, ANN, "read") == 'unknown_tool: no builtin provider handles tool "read"'
    assert await run(host, ANN, "write", text="a") == "success: a"
    assert await run(host, BOB, "read") == "success: read"
    assert await host.saved_toolsets.unequip(ANN) == "one-tool"
    assert listed(host, ANN) == list(in_use.catalog) == everything
    assert [diff.removed or diff.added for diff in heard] == [("read",), ("read",)]
    assert await host.saved_toolsets.unequip(ANN) is None


@pytest.mark.requirement("C-7-saved-equipped")
async def test_an_equipped_catalog_is_in_the_order_of_the_document_and_keeps_every_law(host: Host) -> None:
    await host.saved_toolsets.build(ANN, "turned", named("write", "read"))
    await host.saved_toolsets.equip(ANN, "turned")
    executor = host.executor_for(ANN.principal)
    assert list(executor.catalog) == ["write", "read"]
    assert executor.catalog is host.executor_for(ANN.principal).catalog
    await check_executor(
        executor,
        calls={"read": {}, "write": {"text": "x"}},
        change=lambda: host.saved_toolsets.unequip(ANN),
        context=CallContext(principal=ANN.principal),
    )


@pytest.mark.requirement("C-7-saved-never-admits")
async def test_equipping_admits_nothing_that_the_owner_could_not_call_before(host: Host) -> None:
    with pytest.raises(ApiError, match="there is no tool 'burn'") as refused:
        await host.saved_toolsets.build(ANN, "fire", named("read", "burn"))
    assert refused.value.code == "tool_not_found"
    document = {"name": "fire", "tools": [{"namespacedName": "burn"}, {"namespacedName": "d.read"}]}
    shown = await host.saved_toolsets.import_document(ANN, document_of(document))
    assert [tool["active"] for tool in as_list(shown.fields()["tools"])] == [False, False]
    await host.saved_toolsets.equip(ANN, "fire")
    assert listed(host, ANN) == []
    assert await run(host, ANN, "burn") == 'unknown_tool: no builtin provider handles tool "burn"'
    assert listed(host, ANN._replace(agent="clerk")) == ["d.read"]
    with pytest.raises(ApiError, match=r"'d\.read' is in the toolset, but this caller does not see it now"):
        await host.saved_toolsets.add_notes(ANN, ToolReference("d.read"), [Note("tip", "Read it.")])
    read_only = Principal(subject="ann", tenant="t1", scopes=frozenset({"tools:read"}))
    executor = host.executor_for(read_only, agent="clerk")
    result = await executor.execute(ToolCall("c", "d.read"), CallContext(principal=read_only, agent="clerk"))
    assert result.status == "denied"


@pytest.mark.requirement("C-7-saved-owner")
async def test_in_a_session_somebody_is_another_owner_than_outside_of_it(host: Host) -> None:
    session = (await host.sessions.create(ANN.principal)).session
    inside = ANN._replace(session=session.code)
    await host.saved_toolsets.build(ANN, "outside", named("read"))
    await host.saved_toolsets.build(inside, "inside", named("write"))
    await host.saved_toolsets.equip(inside, "inside")
    assert (listed(host, inside), listed(host, ANN)) == (["write"], ["read", "write"])
    assert [line.fields()["name"] for line in await host.saved_toolsets.saved(ANN)] == ["outside"]
    with pytest.raises(ApiError, match="there is no toolset 'outside'"):
        await host.saved_toolsets.equip(inside, "outside")
    keys = await host.store.keys("equipped-toolset/session/")
    assert len(keys) == 1
    await host.sessions.end(session, ANN.principal)
    for _ in range(20):
        await asyncio.sleep(0)
    assert await host.store.keys("equipped-toolset/session/") == await host.store.keys("saved-toolset/session/") == []


@pytest.mark.requirement("C-7-saved-away")
async def test_a_tool_that_goes_away_stays_in_its_toolset_inactive_and_comes_back(host: Host) -> None:
    shown = await host.saved_toolsets.build(ANN, "both", named("read", "write"))
    assert shown.fields() == {
        "name": "both",
        "version": 1,
        "tools": [
            {"namespacedName": "read", "refId": ref_id("read"), "active": True},
            {"namespacedName": "write", "refId": ref_id("write"), "active": True},
        ],
        "toolNotes": [],
        "equipped": False,
    }
    await host.saved_toolsets.equip(ANN, "both")
    for key in ("desk", "files"):
        await host.disable(key, by=ANN.principal)
    active = await host.saved_toolsets.active(ANN)
    assert active is not None
    assert [tool["active"] for tool in as_list(active.fields()["tools"])] == [False, False]
    assert listed(host, ANN) == []
    await host.enable("files", by=ANN.principal)
    assert listed(host, ANN) == ["read", "write"]


@pytest.mark.requirement("C-7-saved-restored", "ANN-equip-loads", "ANN-AC-2", "ANN-behaviour-persist")
async def test_the_equipped_toolset_and_its_notes_are_there_after_a_restart(config: Write, tmp_path: Path) -> None:
    file = config(f"{FILE}\n    store: sqlite:///{tmp_path}/state.db")
    async with open_host(file, environ={}) as host:
        await host.saved_toolsets.build(ANN, "kept", named("read"))
        await host.saved_toolsets.equip(ANN, "kept")
        await host.saved_toolsets.add_notes(ANN, ToolReference("read"), [Note("units", "Metric.")])
    async with open_host(file, environ={}) as host:
        assert listed(host, ANN) == ["read"]
        assert described(host, ANN) == "Read the page.\n\n### Additional Tool Notes\n\n• **units**: Metric."
        await host.saved_toolsets.unequip(ANN)
        assert described(host, ANN) == "Read the page."
    async with open_host(file, environ={}) as host:
        assert listed(host, ANN) == ["read", "write"]
        await host.saved_toolsets.equip(ANN, "kept")
        assert described(host, ANN).endswith("• **units**: Metric.")


@pytest.mark.requirement("C-7-saved-equipped", "I4-saved-writers")
async def test_two_hosts_on_one_store_hear_of_each_others_changes(config: Write, tmp_path: Path) -> None:
    file = config(f"{FILE}\n    store: sqlite:///{tmp_path}/state.db")
    async with open_host(file, environ={}) as one, open_host(file, environ={}, sessions=False) as two:
        await one.saved_toolsets.build(ANN, "mine", named("write"))
        executor, other = two.executor_for(ANN.principal), one.executor_for(ANN.principal)
        heard = asyncio.Event()
        for each in (executor, other):
            each.subscribe(lambda diff: heard.set())
        await one.saved_toolsets.equip(ANN, "mine")
        async with asyncio.timeout(60):
            while list(executor.catalog) != ["write"]:
                heard.clear()
                await heard.wait()
        await asyncio.gather(
            one.saved_toolsets.add_notes(ANN, ToolReference("write"), [Note("first", "1")]),
            two.saved_toolsets.add_notes(ANN, ToolReference("write"), [Note("second", "2")]),
        )
        document = await two.saved_toolsets.document(ANN, "mine")
        (noted,) = as_list(document["toolNotes"])
        assert (document["version"], sorted(note["name"] for note in noted["notes"])) == (3, ["first", "second"])
        async with asyncio.timeout(60):
            while not all(note in described(host, ANN, "write") for host in (one, two) for note in ("first", "second")):
                await heard.wait()
                heard.clear()


@pytest.mark.requirement("I4-saved-failing-store")
async def test_a_store_that_fails_on_save_leaves_memory_as_it_was(config: Write, tmp_path: Path) -> None:
    file = config(f"{FILE}\n    store: sqlite:///{tmp_path}/state.db")
    async with open_host(file, environ={}) as opened:
        await opened.saved_toolsets.build(ANN, "kept", named("read"))
        await opened.saved_toolsets.build(ANN, "other", named("write"))
        await opened.saved_toolsets.equip(ANN, "kept")
        await opened.store.aclose()
        with pytest.raises(StoreUnavailable):
            await opened.saved_toolsets.add_notes(ANN, ToolReference("read"), [Note("units", "Metric.")])
        with pytest.raises(StoreUnavailable):
            await opened.saved_toolsets.equip(ANN, "other")
        with pytest.raises(StoreUnavailable):
            await opened.saved_toolsets.unequip(ANN)
        assert (listed(opened, ANN), described(opened, ANN)) == (["read"], "Read the page.")


@pytest.mark.requirement("C-7-saved-document", "C-7-saved-disagree", "C-7-saved-used-name", "ANN-build-empty")
async def test_a_toolset_is_built_by_names_wire_names_and_reference_ids_that_agree(host: Host) -> None:
    build = host.saved_toolsets.build
    clerk = ANN._replace(agent="clerk")
    shown = await build(clerk, "mixed", [ToolReference("d__read"), ToolReference(None, ref_id("d.write"))])
    assert shown.toolset.tools == ("d.read", "d.write")
    assert shown.toolset.notes == ()
    refused = {
        "toolset_exists": ("mixed", named("d.read")),
        "tool_reference_mismatch": ("other", [ToolReference("d.read", ref_id("d.write"))]),
        "tool_not_found": ("other", [ToolReference(None, "0" * 16)]),
        "duplicate_tool": ("other", named("d.read", "d__read")),
        "invalid_name": ("import", named("d.read")),
        "too_many_tools": ("other", []),
    }
    for code, (name, tools) in refused.items():
        with pytest.raises(ApiError) as caught:
            await build(clerk, name, tools)
        assert caught.value.code == code
    for name in ("a", "A-b", "a_b", "a" * 51, "ab\n", ""):
        with pytest.raises(ApiError, match="is not a valid name of a toolset"):
            await build(clerk, name, named("d.read"))
    assert [line.toolset.name for line in await host.saved_toolsets.saved(clerk)] == ["mixed"]


@pytest.mark.requirement("C-7-saved-document")
async def test_a_toolset_may_have_a_hundred_tools_and_an_owner_a_hundred_toolsets(host: Host) -> None:
    def document(name: str, tools: int) -> dict[str, object]:
        return {"name": name, "tools": [{"namespacedName": f"tool-{number}"} for number in range(tools)]}

    service = host.saved_toolsets
    shown = await service.import_document(ANN, document_of(document("most", 100)))
    assert len(shown.toolset.tools) == 100
    with pytest.raises(ValidationError):
        document_of(document("more", 101))
    for number in range(99):
        await service.import_document(ANN, document_of(document(f"set-{number}", 1)))
    with pytest.raises(ApiError) as refused:
        await service.import_document(ANN, document_of(document("one-more", 1)))
    assert refused.value.code == "too_many_toolsets"
    await service.import_document(BOB, document_of(document("one-more", 1)))


@pytest.mark.requirement("C-7-saved-equipped")
async def test_deleting_the_equipped_toolset_lists_everything_again(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="toolplug.audit"):
        await host.saved_toolsets.build(ANN, "short-lived", named("read"))
        await host.saved_toolsets.equip(ANN, "short-lived")
        await host.saved_toolsets.delete(ANN._replace(request_id="r1"), "short-lived")
        assert listed(host, ANN) == ["read", "write"]
        with pytest.raises(ApiError, match="there is no toolset"):
            await host.saved_toolsets.delete(ANN, "no such name")
    lines = [json.loads(record.message) for record in caplog.records]
    assert [(line["event"], line["outcome"], line["target"]) for line in lines] == [
        ("toolset.create", "done", "short-lived"),
        ("toolset.equip", "done", "short-lived"),
        ("toolset.delete", "done", "short-lived"),
        ("toolset.delete", "refused", "_unknown"),
    ]
    assert lines[2] | {"ts": 0} == {
        "ts": 0,
        "event": "toolset.delete",
        "outcome": "done",
        "principal": "ann",
        "tenant": "t1",
        "target": "short-lived",
        "request_id": "r1",
    }


@pytest.mark.requirement("C-7-notes-stale")
async def test_notes_of_a_changed_tool_still_show_and_are_stale_and_those_of_none_are_orphans(
    config: Write, package: Package
) -> None:
    package("toolplug-late", {"late": "late_mod:Late"}, late_mod=LATE)
    text = "providers: {late: {enabled: true, text: Old.}}"
    file = config(text)
    async with open_host(file, environ={}) as host:
        service = host.saved_toolsets
        await service.build(ANN, "kept", named("look"))
        await service.add_notes(ANN, ToolReference("look"), [Note("units", "Metric.")], toolset="kept")
        assert notes_of((await service.show(ANN, "kept")).fields()) == [("look", False, [("units", False)])]
        file.write_text(file.read_text().replace("Old.", "New."))
        await host.reload(by=ANN.principal)
        await service.add_notes(ANN, ToolReference("look"), [Note("new", "Of now.")], toolset="kept")
        shown = (await service.show(ANN, "kept")).fields()
        assert notes_of(shown) == [("look", False, [("units", True), ("new", False)])]
        await service.equip(ANN, "kept")
        assert described(host, ANN, "look").startswith("New.\n\n### Additional Tool Notes\n\n• **units**: Metric.")
        await host.disable("late", by=ANN.principal)
        shown = (await service.show(ANN, "kept")).fields()
        assert notes_of(shown) == [("look", True, [("units", True), ("new", True)])]


LATE = """
    from pydantic import BaseModel
    from toolplug import FunctionProvider, ToolDefinition

    class Late(FunctionProvider):
        class Config(BaseModel):
            text: str

        def tools(self):
            return [ToolDefinition(name="look", description=self.config.text)]
"""


def described(host: Host, caller: Caller, name: str = "read") -> str:
    catalog = host.executor_for(caller.principal).catalog
    chat = json.loads(catalog.render("chat"))
    return next(item["function"]["description"] for item in chat if item["function"]["name"] == name)


def document_of(fields: dict[str, object]) -> Document:
    return Document.model_validate(fields)


def as_list(value: object) -> list[dict[str, Any]]:
    assert isinstance(value, list)
    return value


def notes_of(shown: dict[str, object]) -> list[tuple[str, bool, list[tuple[str, bool]]]]:
    return [
        (
            item["toolRef"]["namespacedName"],
            item["orphan"],
            [(note["name"], note["stale"]) for note in item["notes"]],
        )
        for item in as_list(shown["toolNotes"])
    ]


@pytest.mark.requirement("C-7-saved-equipped", "I4-explain-gates")
async def test_explain_names_the_equipped_toolset_that_leaves_a_tool_out(host: Host) -> None:
    await host.saved_toolsets.build(ANN, "mine", named("write"))
    assert host.explain("read", ANN.principal).callable
    await host.saved_toolsets.equip(ANN, "mine")
    explained = host.explain("read", ANN.principal)
    assert not explained.callable
    (gate,) = [gate for gate in explained.gates if gate.verdict != "passes"]
    assert (gate.gate, gate.detail, gate.origin) == (
        "equipped",
        "saved toolset 'mine' is equipped, and does not have this tool",
        "POST /api/toolsets/mine/equip",
    )
    assert host.explain("write", ANN.principal).callable
    assert host.explain("read", BOB.principal).callable


async def test_a_provider_that_asks_for_what_no_host_offers_says_so_at_the_start(
    config: Write, package: Package
) -> None:
    asking = """
        from toolplug import FunctionProvider

        class Asking(FunctionProvider):
            async def start(self, site):
                site.service(dict)
    """
    package("toolplug-asking", {"asking": "asking_mod:Asking"}, asking_mod=asking)
    with pytest.raises(ConfigError, match="LookupError: this host does not offer dict"):
        async with open_host(config("providers: {asking: {enabled: true}}"), environ={}):
            raise AssertionError("it must not start")


class SlowStore(DelegatingStore):
    """The changes of records whose key has `slow` in it wait until `goes` is set; `waits` is set when one does."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store)
        self.id, self.shared = name, True
        self.slow = "nothing"
        self.waits, self.goes = asyncio.Event(), asyncio.Event()

    async def commit(self, key: str, value: bytes | None, **rest: Any) -> int:
        if self.slow in key:
            self.waits.set()
            await self.goes.wait()
        return await super().commit(key, value, **rest)

    async def aclose(self) -> None:
        """Its inner store is closed by the test."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.requirement("I9-saved-owners-apart")
async def test_the_changes_of_one_owner_do_not_wait_for_those_of_another_in_any_process(
    config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = config(FILE)
    async with AsyncExitStack() as life:
        inner = await life.enter_async_context(MemoryStore())
        stores = [SlowStore(inner, "here"), SlowStore(inner, "there")]
        opens = iter(stores)
        monkeypatch.setattr(ConfiguredStore, "open", lambda _: next(opens))
        here, there = [(await life.enter_async_context(open_host(file, environ={}))).saved_toolsets for _ in stores]
        for owner in (ANN, BOB):
            await here.build(owner, "mine", [ToolReference("read")])
        stores[0].slow = ANN.owner.key
        ann = asyncio.create_task(here.equip(ANN, "mine"))
        await stores[0].waits.wait()
        ann_again = asyncio.create_task(here.delete(ANN, "mine"))
        async with asyncio.timeout(20):  # they would wait for ever
            await here.equip(BOB, "mine")
            await here.add_notes(BOB, ToolReference("read"), [Note("tip", "Read it.")])
            await here.unequip(BOB)
            await there.equip(BOB, "mine")
            active = await here.active(BOB)
            assert active is not None, "what is chosen in another process is heard"
            await here.delete(BOB, "mine")
        assert not ann.done()
        stores[0].goes.set()
        assert (await ann).equipped
        await ann_again
        assert (await here.active(ANN), await there.active(ANN)) == (None, None)
