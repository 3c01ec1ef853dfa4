"""A conversation is a session to toolsets that are made for each."""

from __future__ import annotations

from typing import Any

import pytest
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import Harness
from tests.toolsets.harness import Shop

from toolplug import CallContext, FunctionProvider, FunctionRegistry, Host, tool

pytestmark = [pytest.mark.anyio, pytest.mark.process]

READ = calls(Call("fs__read"))
AGENT: Any = {"toolplug_agent": "reader"}


async def read(harness: Harness, previous: str | None = None) -> tuple[str, str]:
    """One response in which the model reads: its id, and what was read."""
    harness.backend.plays(READ, says("Done."))
    answer = await harness.create(metadata=AGENT, previous_response_id=previous)
    return answer.id, answer.output[0].to_dict()["output"]  # type: ignore[return-value]


@pytest.mark.requirement("C-7-session-conversation")
async def test_each_conversation_has_an_executor_of_its_own(staging: Staging) -> None:
    shop = Shop()

    def register(host: Host) -> None:
        host.register_toolset("fs", "fs", shop)

    harness = await staging(prepare=register, agents={"reader": {"toolsets": ["fs"]}})
    first, output = await read(harness)
    assert output == "files 1"
    second, output = await read(harness, previous=first)
    assert output == "files 1"
    assert (await read(harness, previous=second))[1] == "files 1"
    assert (await read(harness))[1] == "files 2"
    assert len(shop.made) == 2


class Diary(FunctionProvider):
    @tool
    async def read(self, context: CallContext) -> str:
        return context.conversation


async def test_a_tool_sees_which_conversation_a_call_belongs_to(staging: Staging) -> None:
    def register(host: Host) -> None:
        host.register_toolset("fs", "fs", lambda: FunctionRegistry({"diary": Diary()}))

    harness = await staging(prepare=register, agents={"reader": {"toolsets": ["fs"]}})
    first, conversation = await read(harness)
    assert conversation
    assert (await read(harness, previous=first))[1] == conversation
    assert (await read(harness))[1] not in ("", conversation)
