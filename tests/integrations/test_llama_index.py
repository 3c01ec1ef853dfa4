"""LlamaIndex: tools with the tool's own schema."""

from __future__ import annotations

import pytest
from tests.integrations.tools import zoo

from toolplug import CallContext, Principal
from toolplug.integrations.llama_index import tools

pytestmark = [pytest.mark.anyio, pytest.mark.framework]


async def test_calls_errors_images_and_schemas() -> None:
    async with zoo() as registry:
        listed = {item.metadata.name: item for item in tools(registry, CallContext(principal=Principal("alice")))}
        fed = await listed["feed"].acall(animal="otter", times=None)
        odd = await listed["odd"].acall(config="a", callbacks="b", run_manager="c")
        failed = await listed["fail"].acall()
        picture = await listed["picture"].acall()
        who = await listed["who"].acall()
    assert (fed.content, fed.is_error) == ("otter fed 1", False)
    assert odd.raw_output == {"config": "a", "callbacks": "b", "run_manager": "c"}
    assert (failed.content, failed.is_error) == ("the gate is closed", True)
    assert [block.block_type for block in picture.blocks] == ["text", "image"]
    assert who.content == "alice"
    function = listed["feed"].metadata.to_openai_tool()["function"]
    assert function["parameters"]["properties"]["animal"]["maxLength"] == 20
    assert listed["feed"].call(animal="otter").is_error


async def test_schemas_are_strict_on_request() -> None:
    async with zoo() as registry:
        feed = next(item for item in tools(registry, strict=True) if item.metadata.name == "feed")
        assert feed.metadata.get_parameters_dict()["required"] == ["animal", "times"]
        assert (await feed.acall(animal="otter", times=None)).content == "otter fed 1"
