"""Hosts on one store: what an operator asks of one, all do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml
from tests.faulty_store import FaultyStore

from toolplug import Host, Principal, open_host
from toolplug.errors import NoSuchProvider
from toolplug.host.peers import HostPeers
from toolplug.stores.memory import MemoryStore
from toolplug.stores.processes import Processes

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I17-2-switches")]

Enter = Callable[[str], Awaitable[Host]]
"""Enters a host on the file of this name, for as long as the test runs."""
ADMIN = Principal("operator", scopes=frozenset({"admin"}))


def write(folder: Path, name: str, **hello: object) -> Path:
    """A file with the provider `hello`; all such files name one store."""
    providers = {"hello": {"type": "hello", "enabled": True, **hello}}
    path = folder / name
    path.write_text(yaml.safe_dump({"store": "sqlite:///./state.db?shared=true", "providers": providers}))
    return path


@pytest.fixture
async def enter(tmp_path: Path) -> AsyncIterator[Enter]:
    async with AsyncExitStack() as life:

        async def entered(name: str) -> Host:
            return await life.enter_async_context(open_host(tmp_path / name, environ={}))

        yield entered


def lists(host: Host) -> bool:
    return host.registry.can_execute("hello")


def timeout_of(host: Host) -> float:
    tool = host.registry.catalog.find("hello")
    return 0.0 if tool is None else tool.plan.timeout_s


async def until(done: Callable[[], bool]) -> None:
    """Wait until the hosts have heard of each other."""
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


async def test_a_provider_is_disabled_and_enabled_in_all(tmp_path: Path, enter: Enter) -> None:
    write(tmp_path, "one.yaml")
    write(tmp_path, "other.yaml", greeting="Good day")
    here = await enter("one.yaml")
    there = await enter("other.yaml")
    await here.disable("hello", by=ADMIN)
    await until(lambda: not lists(there))
    later = await enter("one.yaml")
    assert not lists(later)
    await there.enable("hello", by=ADMIN)
    await until(lambda: lists(here) and lists(later))
    with pytest.raises(NoSuchProvider):
        await here.disable("nobody", by=ADMIN)


async def test_a_reload_everywhere_reads_each_file_and_clears_the_switches(
    tmp_path: Path, enter: Enter, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "one.yaml")
    write(tmp_path, "other.yaml")
    here = await enter("one.yaml")
    there = await enter("other.yaml")
    await here.disable("hello", by=ADMIN)
    await until(lambda: not lists(there))
    await there.reload(by=ADMIN)
    assert lists(there)
    await until(lambda: lists(here))
    assert here.last_reload is None
    write(tmp_path, "other.yaml", limits={"timeout": "7s"})
    await here.reload(by=ADMIN, everywhere=True)
    await until(lambda: timeout_of(there) == 7)
    assert there.last_reload is not None
    assert there.last_reload.by == "operator"
    (tmp_path / "other.yaml").write_text("providers: [")
    await here.reload(by=ADMIN, everywhere=True)
    await until(lambda: "not reloaded as 'operator' asked another process" in caplog.text)
    assert lists(there)


async def test_the_first_host_of_all_begins_with_what_the_file_says(tmp_path: Path, enter: Enter) -> None:
    path = write(tmp_path, "one.yaml")
    async with open_host(path, environ={}) as host:
        await host.disable("hello", by=ADMIN)
    again = await enter("one.yaml")
    assert lists(again)


async def test_switches_that_an_earlier_process_left_are_cleared() -> None:
    async with MemoryStore() as inner:
        store = FaultyStore(inner)
        store.shared = True
        await store.commit("~host/switches", b'{"hello":false}')
        switched: list[object] = []

        async def switch(switches: object) -> None:
            switched.append(switches)

        async def reload(by: str) -> None:
            raise AssertionError(by)

        async with Processes(store) as processes, HostPeers(store, processes, switch, reload):
            assert switched == [{}]
