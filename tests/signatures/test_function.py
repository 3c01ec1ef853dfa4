"""A function on its own is read as a method is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from toolplug.catalog.call import CallContext
from toolplug.errors import InvalidDefinition
from toolplug.signatures.annotations import UnresolvedAnnotation, names_around
from toolplug.signatures.signature import Signature, read_function


class Row(BaseModel):
    name: str
    size: int = 1


ROW = {
    "properties": {"name": {"type": "string"}, "size": {"default": 1, "type": "integer"}},
    "required": ["name"],
    "type": "object",
}


def add_rows(rows: list[Row], context: CallContext, at: int | None = None) -> int:
    """Add rows to the table.

    Args:
        rows: what to add
    """
    return len(rows) + (at or 0)


@dataclass
class Table:
    size: int

    async def grow(self, by: int) -> Row:
        """Make the table larger."""
        return Row(name="grown", size=self.size + by)


def read_here(function: Callable[..., object]) -> Signature:
    return read_function(function, function.__qualname__, names_around(sys._getframe(1)))


def test_a_function_of_a_module_has_a_schema_a_summary_and_a_context() -> None:
    read = read_here(add_rows)
    assert (read.summary, read.context, read.output) == ("Add rows to the table.", "context", {"type": "integer"})
    assert read.parameters["properties"] == {
        "rows": {"type": "array", "items": ROW, "description": "what to add"},
        "at": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }
    assert read.convert is not None
    assert read.convert({"rows": [{"name": "a"}]}) == {"rows": [Row(name="a")]}


def test_a_method_of_an_object_is_read_without_its_self() -> None:
    read = read_here(Table(3).grow)
    assert read.summary == "Make the table larger."
    assert list(read.parameters["properties"]) == ["by"]  # type: ignore[call-overload]
    assert read.output is not None


def test_annotations_may_name_what_stands_where_the_function_is_made() -> None:
    class Point(BaseModel):
        x: int

    def move(to: Point) -> Point:
        return to

    read = read_here(move)
    assert read.convert is not None
    assert read.convert({"to": {"x": 1}}) == {"to": Point(x=1)}


def test_an_annotation_that_means_nothing_is_told_with_its_parameter() -> None:
    def lost(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UnresolvedAnnotation, match=r"lost: the annotation 'Nowhere' of parameter 'thing'"):
        read_here(lost)


def test_what_cannot_be_passed_by_name_is_refused() -> None:
    def many(*things: str) -> None: ...

    with pytest.raises(InvalidDefinition, match="parameter 'things' takes any number of arguments"):
        read_here(many)
