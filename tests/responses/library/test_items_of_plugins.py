"""A plugin says what its calls are shown as."""

from __future__ import annotations

import pytest

from toolplug import HostedItem, tool
from toolplug.errors import InvalidDefinition
from toolplug.parts.responses.items.hosted import hide_fields


@pytest.mark.requirement("C-9-item-types")
@pytest.mark.parametrize("kind", ["", "call", "message", "Acme:call", "acme:", "function_call_output"])
def test_an_item_that_is_no_call_and_has_no_prefix_is_refused(kind: str) -> None:
    with pytest.raises(InvalidDefinition, match="write it as `slug:name`"):
        tool(item=HostedItem(kind))


@pytest.mark.requirement("I6-2-include")
def test_what_is_not_asked_for_is_as_it_was_before_the_call() -> None:
    shape = HostedItem(
        "acme:look_call", fields={"found": None, "action": {}}, on_include=("found", "action.sources", "extra")
    )
    item = {"type": shape.type, "found": [1], "action": {"type": "look", "sources": [2]}, "extra": 3}
    assert hide_fields(item, shape, ()) == {"type": shape.type, "found": None, "action": {"type": "look"}}
    everything = {f"{shape.type}.{path}" for path in shape.on_include}
    assert hide_fields(item, shape, everything) == item
