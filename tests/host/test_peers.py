"""Hosts on one store: what an operator sets or asks at one has been applied by all when the answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from tests.faulty_store import FaultyStore

from toolplug import CallContext, Caller, Host, Principal, ToolCall, ToolReference, ToolStatus, open_host
from toolplug.cluster import processes
from toolplug.errors import NoSuchProvider, StoreUnavailable
from toolplug.host.file.store_entry import ConfiguredStore
from toolplug.host.inspection import findings, open_inspected
from toolplug.host.toolsets.records import Binding
from toolplug.packages.entry_points import find_installed
from toolplug.parts.mcp.client.server_tools import ServerTools
from toolplug.parts.mcp.server_records import ServerRecord
from toolplug.stores.memory import MemoryStore
from toolplug.toolsets.saved.document import Document

pytestmark = pytest.mark.anyio

Enter = Callable[[str], Awaitable[Host]]
"""Enters a host on the file of this name, for as long as the test runs."""
ADMIN = Principal("operator", scopes=frozenset({"admin", "operator"}))
ANN = Caller(Principal("ann", scopes=frozenset({"tools:read", "tools:call"})))

NONE = {"name": "none", "tools": [{"namespacedName": "elsewhere"}]}
"""A saved toolset of a tool that is not there."""


def write(folder: Path, name: str, **hello: object) -> Path:
    """A file with the provider `hello`; all such files name one store."""
    path = folder / name
    path.write_text(
        yaml.safe_dump(
            {
                "store": "memory://",
                "providers": {"hello": {"type": "hello", "enabled": True, **hello}},
                "mcp_servers": {"files": {"command": "false", "enabled": False}},
                "agents": {"clerk": {"toolsets": []}},
            }
        )
    )
    return path


@pytest.fixture
async def stores(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[FaultyStore]]:
    """The stores of all hosts of the test, over one in memory; each looks for what it has missed ten times a second."""
    monkeypatch.setattr(processes, "RENEWED_EVERY_S", 0.1)
    opened: list[FaultyStore] = []
    async with MemoryStore() as inner:

        def opens(_: ConfiguredStore) -> FaultyStore:
            opened.append(FaultyStore(inner))
            opened[-1].id, opened[-1].shared = f"process{len(opened)}", True
            return opened[-1]

        monkeypatch.setattr(ConfiguredStore, "open", opens)
        yield opened


@pytest.fixture
async def enter(tmp_path: Path, stores: list[FaultyStore]) -> AsyncIterator[Enter]:
    async with AsyncExitStack() as life:

        async def entered(name: str) -> Host:
            return await life.enter_async_context(open_host(tmp_path / name, environ={}))

        yield entered


@pytest.fixture
async def three(tmp_path: Path, enter: Enter) -> tuple[Host, Host, Host]:
    write(tmp_path, "one.yaml")
    return await enter("one.yaml"), await enter("one.yaml"), await enter("one.yaml")


@pytest.fixture(params=["pushed", "lost"])
def pushes(request: pytest.FixtureRequest, three: object, stores: list[FaultyStore]) -> None:
    """Whether the stores tell what others have written, or each process finds it when it looks."""
    if request.param == "lost":
        for store in stores:
            store.hold("watch")


def lists(host: Host, agent: str | None = None) -> bool:
    return any("hello" in name for name in host.executor_for(ANN.principal, agent=agent).catalog)


async def refuses(host: Host) -> bool:
    result = await host.executor_for(ADMIN).execute(
        ToolCall("c1", "hello", {"name": "A"}), CallContext(principal=ADMIN)
    )
    return result.status is ToolStatus.UNKNOWN_TOOL


def timeout_of(host: Host) -> float:
    tool = host.registry.catalog.find("hello")
    return 0.0 if tool is None else tool.plan.timeout_s


@pytest.mark.requirement("I17-2-exact-settings")
@pytest.mark.usefixtures("pushes")
async def test_toolsets_and_allowlists_are_set_in_all(three: tuple[Host, Host, Host]) -> None:
    here, there, elsewhere = three
    await here.toolsets.bind("greetings", Binding("hi", "provider:hello"), by=ADMIN, request_id="")
    assert [host.toolsets.prefixes(ADMIN.tenant) for host in three] == [{"hi"}] * 3
    await there.allow("clerk", ["greetings"])
    assert [lists(host, "clerk") for host in three] == [True] * 3
    await elsewhere.allow("clerk", [])
    assert [lists(host, "clerk") for host in three] == [False] * 3


@pytest.mark.requirement("I17-2-exact-settings")
@pytest.mark.usefixtures("pushes")
async def test_mcp_servers_are_changed_in_all(three: tuple[Host, Host, Host]) -> None:
    here, there, elsewhere = three
    added = ServerRecord(id="web", url="https://mcp.example.com/mcp", enabled=False)
    await here.servers.loaded.add(added, by=ADMIN, request_id="")
    assert ["web" in host.servers.ids(ADMIN.tenant) for host in three] == [True] * 3
    changed = ServerRecord(id="files", tools={"read": "deny"})
    await there.servers.loaded.change(changed, by=ADMIN, request_id="")
    policies = [host.servers.loaded.server(ADMIN.tenant, "files").tools for host in three]
    assert policies == [policies[1]] * 3
    assert policies[0]
    await elsewhere.servers.loaded.remove("web", by=ADMIN, request_id="")
    assert ["web" in host.servers.ids(ADMIN.tenant) for host in three] == [False] * 3


@pytest.mark.requirement("I17-2-exact-settings")
@pytest.mark.usefixtures("pushes")
async def test_saved_toolsets_are_equipped_in_all(three: tuple[Host, Host, Host]) -> None:
    here, there, elsewhere = three
    await here.saved_toolsets.import_document(ANN, Document.model_validate(NONE))
    assert [lists(host) for host in three] == [True] * 3
    await here.saved_toolsets.equip(ANN, "none")
    assert [lists(host) for host in three] == [False] * 3
    await there.saved_toolsets.unequip(ANN)
    assert [lists(host) for host in three] == [True] * 3
    await there.saved_toolsets.equip(ANN, "none")
    await elsewhere.saved_toolsets.delete(ANN, "none")
    assert [lists(host) for host in three] == [True] * 3
    await here.saved_toolsets.build(ANN, "greeting", [ToolReference("hello")])
    await here.saved_toolsets.equip(ANN, "greeting")
    assert [lists(host) for host in three] == [True] * 3


@pytest.mark.requirement("I17-2-switches")
@pytest.mark.usefixtures("pushes")
async def test_a_provider_is_disabled_and_enabled_in_all(three: tuple[Host, Host, Host], enter: Enter) -> None:
    here, there, elsewhere = three
    await here.disable("hello", by=ADMIN)
    assert [await refuses(host) for host in three] == [True] * 3
    later = await enter("one.yaml")
    assert await refuses(later)
    await there.enable("hello", by=ADMIN)
    assert [await refuses(host) for host in (*three, later)] == [False] * 4
    await elsewhere.disable("hello", by=ADMIN)
    with pytest.raises(NoSuchProvider):
        await here.disable("nobody", by=ADMIN)


@pytest.mark.requirement("I17-2-switches")
@pytest.mark.usefixtures("pushes")
async def test_a_reload_reads_each_file_clears_the_switches_and_answers_for_each(tmp_path: Path, enter: Enter) -> None:
    write(tmp_path, "one.yaml")
    write(tmp_path, "other.yaml", greeting="Good day")
    here = await enter("one.yaml")
    there = await enter("other.yaml")
    await here.disable("hello", by=ADMIN)
    write(tmp_path, "other.yaml", limits={"timeout": "7s"})
    await here.reload(by=ADMIN)
    others = await here.admin.reload_others(by=ADMIN)
    assert others[there.admin.process] == ((("hello",), (), ()), ())
    assert (timeout_of(there), lists(here)) == (7, True)
    assert there.last_reload is not None
    assert there.last_reload.by == "operator"
    (tmp_path / "other.yaml").write_text("providers: [")
    others = await here.admin.reload_others(by=ADMIN)
    (problem,) = others[there.admin.process].problems
    assert problem.file.endswith("other.yaml")
    assert lists(there)


@pytest.mark.requirement("I17-2-switches")
async def test_a_provider_that_only_one_file_has_is_switched_there(tmp_path: Path, enter: Enter) -> None:
    path = write(tmp_path, "one.yaml")
    (tmp_path / "other.yaml").write_text(path.read_text().replace("  hello:", "  greeter:"))
    here, there = await enter("one.yaml"), await enter("other.yaml")
    async with asyncio.timeout(10):
        await here.disable("hello", by=ADMIN)
    assert (lists(here), lists(there)) == (False, True)


@pytest.mark.requirement("I17-2-switches")
async def test_a_process_reloaded_by_a_signal_clears_the_switches_of_all(three: tuple[Host, Host, Host]) -> None:
    here, there, _ = three
    await here.disable("hello", by=ADMIN)
    await there.reload(by=ADMIN)
    async with asyncio.timeout(20):
        while any(not lists(host) for host in three):
            await asyncio.sleep(0.01)
    assert here.last_reload is None


@pytest.mark.requirement("I17-2-switches")
async def test_the_first_host_of_all_begins_with_what_the_file_says(tmp_path: Path, stores: list[FaultyStore]) -> None:
    path = write(tmp_path, "one.yaml")
    async with open_host(path, environ={}) as host:
        await stores[0].inner.commit("~host/switches", b'{"hello":false}')
        await host.disable("hello", by=ADMIN)
    async with open_host(path, environ={}) as host:
        assert lists(host)


@pytest.mark.requirement("I17-2-switches")
async def test_a_switch_that_a_live_process_may_not_have_applied_says_so(
    three: tuple[Host, Host, Host], stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolplug.host.admin.admin.ANSWERED_WITHIN_S", 0.3)
    stores[1].hold("read")
    try:
        with pytest.raises(StoreUnavailable, match=r"'hello' is switched, but process2\.1 did not answer"):
            await three[0].disable("hello", by=ADMIN)
        assert await refuses(three[2])
        reloaded = await three[0].admin.reload_others(by=ADMIN)
        assert [item.code for item in reloaded["process2.1"].problems] == ["no_answer"]
    finally:
        stores[1].go("read")


@pytest.mark.requirement("I17-2-unequal-configuration")
async def test_processes_with_unequal_files_are_named(tmp_path: Path, enter: Enter) -> None:
    path = write(tmp_path, "one.yaml")
    write(tmp_path, "other.yaml", greeting="Good day")
    here, same, other = await enter("one.yaml"), await enter("one.yaml"), await enter("other.yaml")
    running = await here.admin.processes()
    digests = [running[host.admin.process].config for host in (here, same, other)]
    assert digests[0] == digests[1] != digests[2]
    async with open_inspected(path, [], environ={}) as doctor:
        found = (await findings(doctor, find_installed(), [])).warnings
        (warning,) = [item for item in found if item.code == "other_configuration"]
        assert other.admin.process in warning.message
        path.write_text("# only a comment\n" + path.read_text())
        write(tmp_path, "other.yaml")
        await other.reload(by=ADMIN)
        found = (await findings(doctor, find_installed(), [])).warnings
        assert [item for item in found if item.code == "other_configuration"] == []


@pytest.mark.slow
@pytest.mark.requirement("I17-2-discovery")
async def test_hosts_that_start_together_list_a_server_once(
    tmp_path: Path, stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    listings: list[None] = []

    async def listing(self: ServerTools, fresh: bool) -> list[object]:
        listings.append(None)
        await asyncio.sleep(0.2)
        return [{"name": "read", "inputSchema": {"type": "object"}}]

    monkeypatch.setattr(ServerTools, "listing", listing)
    servers = {"files": {"command": "false"}}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"store": "memory://", "mcp_servers": servers}))
    for expected in (1, 2):
        async with AsyncExitStack() as life:
            opened = [open_host(tmp_path / "one.yaml", environ={}) for _ in range(3)]
            hosts = [await life.enter_async_context(host) for host in opened]
            await asyncio.sleep(1.2)
            hosts.append(await life.enter_async_context(open_host(tmp_path / "one.yaml", environ={})))
            await asyncio.sleep(0.7)
            found = [host.servers.loaded.server(ADMIN.tenant, "files").record for host in hosts]
            assert [[tool.name for tool in record.tools] for record in found] == [["read"]] * 4
            assert len(listings) == expected


@pytest.mark.requirement("I17-2-exact-settings")
@pytest.mark.parametrize("lost", [False, True], ids=["pushed", "lost"])
async def test_what_is_discovered_and_accepted_is_known_in_all(
    tmp_path: Path, enter: Enter, stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    tool: dict[str, object] = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}}

    async def listing(self: ServerTools, fresh: bool) -> list[object]:
        return [{**tool}]

    monkeypatch.setattr(ServerTools, "listing", listing)
    servers = {"files": {"command": "false", "pin": True}}
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"store": "memory://", "mcp_servers": servers}))
    here, there, elsewhere = hosts = [await enter("one.yaml") for _ in range(3)]

    def quarantined() -> list[list[bool]]:
        records = [host.servers.loaded.server(ADMIN.tenant, "files").record for host in hosts]
        return [[found.quarantined for found in record.tools] for record in records]

    await here.servers.loaded.discover("files", by=ADMIN, wait_s=5, request_id="")
    assert quarantined() == [[False]] * 3
    if lost:
        for store in stores:
            store.hold("watch")
    tool["description"] = "Write."
    await there.servers.loaded.discover("files", by=ADMIN, wait_s=5, request_id="")
    assert quarantined() == [[True]] * 3
    await elsewhere.servers.loaded.accept("files", None, by=ADMIN, request_id="")
    assert quarantined() == [[False]] * 3
