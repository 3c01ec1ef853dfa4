"""A function as a tool: what is told about it, and what cannot be one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from toolplug.client import Application, Requirement, Tool
from toolplug.errors import InvalidDefinition


class Point(BaseModel):
    x: int


class Board:
    def __init__(self, size: int) -> None:
        self._size = size

    def size(self) -> int:
        """How large the board is."""
        return self._size


def test_a_definition_holds_what_there_is_to_say() -> None:
    async def move(to: Point) -> Point:
        """Move the piece.

        Args:
            to: where it goes
        """
        return to

    made = Tool(move, idempotent=True, requires=["storage", Requirement("computation", "advanced")])
    assert {key: made.definition[key] for key in ("name", "description", "annotations", "requires")} == {
        "name": "move",
        "description": "Move the piece.",
        "annotations": {"idempotentHint": True},
        "requires": ["storage", {"type": "computation", "level": "advanced"}],
    }
    assert "outputSchema" in made.definition
    assert (made.name, made.blocking, repr(made)) == ("move", False, "Tool('move')")


def test_a_method_of_an_object_is_a_tool_of_that_object() -> None:
    app = Application("http://127.0.0.1", plugin_type="board")
    app.add(Board(3).size)
    app.tool(name="other_size")(Board(4).size)
    assert [tool.function() for tool in app.tools.values()] == [3, 4]
    assert dict(app.tools["size"].definition) == {
        "name": "size",
        "description": "How large the board is.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def test_a_decorated_function_stays_what_it_was() -> None:
    app = Application("http://127.0.0.1", plugin_type="board")

    @app.tool(description="Twice as much.")
    def double(number: int) -> int:
        return 2 * number

    assert double(2) == 4
    assert app.tools["double"].definition["description"] == "Twice as much."


def test_annotations_may_name_what_stands_beside_the_function() -> None:
    class Local(BaseModel):
        x: int

    app = Application("http://127.0.0.1", plugin_type="board")

    @app.tool
    def one(local: Local) -> None: ...

    @app.tool(name="two")
    def another(local: Local) -> None: ...

    def three(local: Local) -> None: ...
    def four(local: Local) -> None: ...
    def five(local: Local) -> None: ...

    app.add(three)
    added = list(app.tools)
    app.replace([four, Tool(five)])
    assert (added, list(app.tools)) == (["one", "two", "three"], ["four", "five"])


@pytest.mark.parametrize("what", [Board, partial(print), print, "text", None])
def test_what_is_no_function_is_refused(what: Any) -> None:
    with pytest.raises(InvalidDefinition, match="is no function; lend a function, or a method of an object"):
        Tool(what)


def test_a_function_that_cannot_be_described_is_refused_by_its_name() -> None:
    def lost(thing: object, *more: object) -> None: ...
    def wordy() -> None: ...

    with pytest.raises(InvalidDefinition, match=r"lost: parameter 'more' takes any number of arguments"):
        Tool(lost)
    with pytest.raises(InvalidDefinition, match=r"wordy: the description of 'wordy' has 9000 bytes"):
        Tool(wordy, description="x" * 9000)
