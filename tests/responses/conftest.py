"""A host with a scripted backend behind it and judged clients before it, all in the loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from secrets import token_hex
from types import MappingProxyType

import pytest
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.harness import Harness, Prepare, opened_harness, untouched
from tests.responses.serving import serving

POINTS = """\
[toolplug.providers]
desk = tests.responses.fake_providers:FakeTools
search = tests.responses.fake_providers:Search
shelf = tests.responses.fake_providers:Shelf
"""

NOTHING: Mapping[str, object] = MappingProxyType({})
Staging = Callable[..., Awaitable[Harness]]


@pytest.fixture(scope="module")
def desk_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The providers' distribution, as pip would leave it."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toolplug_desk-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-desk\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield


@pytest.fixture
async def staging(desk_package: None) -> AsyncIterator[Staging]:
    """Opens a harness with sections of one's own, and `backend` as settings of how the backend is reached.

    `more_providers` are entries besides its own.

    `items` is the setting of how calls are shown.

    `asking` is the policy of `ask_first`. `prepare` is done to the host before it is entered. The script behind each
    must have been long enough.
    """
    async with AsyncExitStack() as opened:
        stages: list[Harness] = []

        async def harness(
            *,
            backend: Mapping[str, object] = NOTHING,
            items: str = "mcp_call",
            prepare: Prepare = untouched,
            asking: object = "ask",
            tool_changes: str | None = None,
            more_providers: Mapping[str, object] = NOTHING,
            **sections: object,
        ) -> Harness:
            script = ScriptedBackend()
            url = await opened.enter_async_context(serving(script))
            reached = {"base_url": f"{url}/v1", **backend}
            board = f"board-{token_hex(4)}"
            more = {"asking": asking, "tool_changes": tool_changes, "more_providers": more_providers}
            entered = opened_harness(script, reached, board, sections, items, prepare, **more)
            stages.append(await opened.enter_async_context(entered))
            return stages[-1]

        yield harness
        assert [harness.backend.overrun for harness in stages] == [0] * len(stages)


@pytest.fixture(scope="module")
async def one_stage(desk_package: None) -> AsyncIterator[Harness]:
    """One harness for all tests of a file, as long as they change nothing of the host."""
    script = ScriptedBackend()
    async with (
        serving(script) as url,
        opened_harness(script, {"base_url": f"{url}/v1"}, f"board-{token_hex(4)}", {}) as harness,
    ):
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.to_thread(bool)  # starts the one thread of the loop, which lives as long as this harness
        yield harness


@pytest.fixture
def shared_stage(one_stage: Harness) -> Iterator[Harness]:
    """The same, with nothing asked, written or seen yet. What runs its calls is parked until the end of the file."""
    one_stage.clear()
    yield one_stage
    assert one_stage.backend.overrun == 0


@pytest.fixture
async def harness(staging: Staging) -> Harness:
    """A harness of the test's own; a file whose tests change nothing of the host takes the shared one for it."""
    return await staging()
