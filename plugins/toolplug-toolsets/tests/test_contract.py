"""The provider keeps the contract between providers and hosts, and says what it needs where there is no host."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug import CallContext, ToolCall
from toolplug.testing.provider_check import check_provider, running
from toolplug_toolsets.provider import Toolsets

README = Path(__file__).parents[1] / "README.md"

pytestmark = pytest.mark.anyio

TOOLS = [
    "list-available-tools",
    "build-toolset",
    "list-saved-toolsets",
    "equip-toolset",
    "unequip-toolset",
    "delete-toolset",
    "get-active-toolset",
    "add-tool-annotation",
]


@pytest.mark.requirement("I2-9-all-use-it")
async def test_it_keeps_every_rule_of_a_provider() -> None:
    await check_provider(Toolsets, uncalled=TOOLS, readme=README)


@pytest.mark.requirement("C-7-toolsets-provider")
async def test_it_has_eight_tools_which_need_a_host() -> None:
    async with running(Toolsets) as registry:
        assert list(registry.catalog) == TOOLS
        result = await registry.execute(ToolCall("1", "list-saved-toolsets"), CallContext())
        assert result.status == "tool_error"
        assert result.output.startswith("this provider needs a host that offers SavedToolsets")


@pytest.mark.requirement("ANN-tool-schema", "ANN-tool-ref-either")
async def test_an_annotation_takes_a_reference_and_named_notes() -> None:
    async with running(Toolsets) as registry:
        definition = registry.catalog["add-tool-annotation"].definition
        schema = definition.parameters.value
        assert definition.description == (
            "Add contextual annotations to a tool in the current toolset to guide LLM usage"
        )
        assert schema["required"] == ["toolRef", "notes"]
        note = schema["properties"]["notes"]["items"]
        assert schema["properties"]["notes"] == {
            "type": "array",
            "minItems": 1,
            "maxItems": 20,
            "description": "Array of annotations to add to the tool",
            "items": note,
        }
        assert list(schema["properties"]["toolRef"]["properties"]) == ["namespacedName", "refId"]
        assert note["required"] == ["name", "note"]
        assert note["properties"]["name"]["pattern"] == "^[a-z0-9-]{2,50}$"
