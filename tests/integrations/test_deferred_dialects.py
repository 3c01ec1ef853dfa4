"""The deferred dialects, read by the types of the model APIs' own SDKs."""

from __future__ import annotations

import pytest
from anthropic.types import ToolUnionParam
from openai.types.responses import ToolParam
from pydantic import TypeAdapter
from tests.search.conftest import OpenMany, many_package, open_many

from toolplug import Principal

__all__ = ["many_package", "open_many"]

pytestmark = [pytest.mark.anyio, pytest.mark.framework]

CALLER = Principal(scopes=frozenset({"tools:call"}))
CRM = {"crm": {"prefix": "crm", "from": "provider:many"}}


@pytest.mark.parametrize("agent", [None, "clerk"])
async def test_anthropic_and_openai_take_what_is_rendered(open_many: OpenMany, agent: str | None) -> None:
    async with open_many({"count": 30}, toolsets=CRM, agents={"clerk": {"toolsets": ["crm"]}}) as host:
        tools = host.executor_for(CALLER, agent=agent)
        anthropic, openai = tools.for_anthropic(), tools.for_openai("responses")
    assert TypeAdapter(list[ToolUnionParam]).validate_python(anthropic) == anthropic
    read = TypeAdapter(list[ToolParam]).validate_python(openai)
    assert [tool["type"] for tool in read] == [tool["type"] for tool in openai]
