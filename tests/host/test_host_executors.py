"""Every executor that a host gives keeps the laws of executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.host.conftest import Package
from tests.host.test_toolsets import ADMIN, FILE, NOTES
from tests.toolsets.harness import READ, Shop

from toolplug import CallContext, ToolReference, open_host
from toolplug.testing.executor_laws import check_executor
from toolplug.toolsets.saved.saved_toolset import Caller

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("notes")]

Write = Callable[[str], Path]
TEXT = f"{FILE}\n    sessions: {{default_toolset: two}}\n    limits: {{artifacts: true}}"


class Asked(NamedTuple):
    """What `executor_for` is asked for, what of it can be called, and which provider's switch changes it."""

    calls: tuple[str, ...]
    agent: str | None = None
    session: bool = False
    toolsets: tuple[str, ...] = ()
    equipped: tuple[str, ...] = ()
    switched: str = "more"


EVERY = {
    "without agent": Asked(("read",), switched="notes"),
    "agent": Asked(("second.read", "first.read"), agent="researcher"),
    "toolsets of the request": Asked(("second.read",), agent="researcher", toolsets=("two",)),
    "default toolset": Asked(("read", "second.read"), session=True),
    "agent in a session": Asked(("own.read", "first.read", "second.read"), agent="coder", session=True),
    "made for each call": Asked(("own.read", "first.read"), agent="coder", switched="notes"),
    "equipped": Asked(("second.read",), agent="researcher", equipped=("second.read", "first.fail")),
    "equipped in a session": Asked(("read", "second.read"), session=True, equipped=("read", "second.read")),
}


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


@pytest.mark.requirement("I4-laws", "SC-004", "C-12-executor-protocol")
@pytest.mark.parametrize("name", EVERY)
async def test_every_executor_of_a_host_keeps_the_laws(config: Write, name: str) -> None:
    asked = EVERY[name]
    async with open_host(config(TEXT), environ={}) as host:
        host.register_toolset("own", "own", Shop(), READ)
        await host.toolsets.allow("coder", ("own", "one"), by=ADMIN, request_id="r")
        code = (await host.sessions.create(ADMIN)).session.code if asked.session else None
        if asked.equipped:
            caller = Caller(ADMIN, asked.agent, code)
            await host.saved_toolsets.build(caller, "chosen", [ToolReference(item) for item in asked.equipped])
            await host.saved_toolsets.equip(caller, "chosen")
        executor = host.executor_for(ADMIN, agent=asked.agent, session=code, toolsets=asked.toolsets)

        async def change() -> None:
            await host.disable(asked.switched, by=ADMIN)

        calls = {item: {} for item in asked.calls}
        await check_executor(executor, calls=calls, change=change, context=CallContext(principal=ADMIN))
