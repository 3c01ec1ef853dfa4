"""A host with a scripted backend behind it and judged clients before it, all in the loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType

import pytest
from tests.responses.backend.scripted import ScriptedBackend
from tests.responses.serving import serving
from tests.responses.stage import Prepare, Stage, staged, untouched

POINTS = """\
[toolplug.providers]
desk = tests.responses.desk:Desk
search = tests.responses.desk:Search
shelf = tests.responses.desk:Shelf
"""

NOTHING: Mapping[str, object] = MappingProxyType({})
Staging = Callable[..., Awaitable[Stage]]


@pytest.fixture
def desk_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The providers' distribution, as pip would leave it."""
    info = tmp_path / "site" / "toolplug_desk-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-desk\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture
async def staging(desk_package: None) -> AsyncIterator[Staging]:
    """Opens a stage with sections of one's own, and `backend` as settings of how the backend is reached.

    `prepare` is done to the host before it is entered. The script behind each must have been long enough.
    """
    async with AsyncExitStack() as opened:
        stages: list[Stage] = []

        async def stage(
            *, backend: Mapping[str, object] = NOTHING, prepare: Prepare = untouched, **sections: object
        ) -> Stage:
            script = ScriptedBackend()
            url = await opened.enter_async_context(serving(script))
            reached = {"base_url": f"{url}/v1", **backend}
            entered = staged(script, reached, f"board-{token_hex(4)}", sections, prepare)
            stages.append(await opened.enter_async_context(entered))
            return stages[-1]

        yield stage
        assert [stage.backend.overrun for stage in stages] == [0] * len(stages)


@pytest.fixture
async def stage(staging: Staging) -> Stage:
    """The stage that most tests need."""
    return await staging()
