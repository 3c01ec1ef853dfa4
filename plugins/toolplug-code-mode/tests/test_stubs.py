"""Stubs: tools as Python functions, and how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolplug import ToolDefinition, tool
from toolplug.execution.executor import open_catalog
from toolplug_code_mode.stubs import function_names, stub_of

from .conftest import ADA, Serve, Shop

pytestmark = pytest.mark.requirement("I37-stubs")


def _stub(parameters: Mapping[str, Any], output: Mapping[str, Any] | None = None, about: str = "Do it.") -> str:
    schema = {"type": "object", **parameters}
    return stub_of("f", ToolDefinition(name="f", description=about, parameters=schema, output_schema=output))


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
        ({"const": 3}, "Literal[3]"),
        ({"enum": [str(n) for n in range(60)]}, "str"),
        ({"enum": ['"]\n']}, "Literal['\"]\\n']"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int | None"),
        ({"type": "array", "items": {"type": "string"}}, "Sequence[str]"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "Mapping[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Mapping[str, int]"),
        ({"$ref": "#/$defs/a"}, "bool"),
        ({"allOf": [{"$ref": "#/$defs/a"}]}, "bool"),
        ({}, "Any"),
        ({"description": "anything"}, "Any"),
    ],
)
def test_types_of_arguments(schema: Mapping[str, object], written: str) -> None:
    given = {"properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    text = _stub({**given, "$defs": {"a": {"type": "boolean"}}})
    assert text.splitlines()[0] == f"async def f(*, a: {written}) -> Any:"


def test_what_python_cannot_name_is_passed_by_two_stars() -> None:
    given = {"properties": {"from": {"type": "string"}, "to": {"type": "string"}}, "additionalProperties": False}
    assert _stub(given).splitlines()[0] == "async def f(*, to: str = ..., **___: Any) -> Any:"
    assert _stub({}).splitlines()[0] == "async def f(**_: Any) -> Any:"
    ligature = {"properties": {"\ufb01": {}, "fi": {}}, "additionalProperties": False}
    assert _stub(ligature).splitlines()[0] == "async def f(*, fi: Any = ..., **___: Any) -> Any:"


def test_an_output_is_a_typed_dictionary() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string"}, "b-c": {"type": "integer"}}, "required": ["a"]}
    output = {"type": "object", "properties": {"items": {"type": "array", "items": item}}, "required": ["items"]}
    assert _stub({"additionalProperties": False}, output).splitlines() == [
        "Result2_f = TypedDict('Result2_f', {'a': str, 'b-c': NotRequired[int]})",
        "class Result_f(TypedDict):",
        "    items: list[Result2_f]",
        "async def f() -> Result_f:",
        '    """Do it."""',
    ]
    assert "-> list[int]:" in _stub({}, {"type": "array", "items": {"type": "integer"}})
    assert "-> dict[str, Any]:" in _stub({}, {"type": "object", "additionalProperties": True})


def test_a_description_stays_a_description() -> None:
    text = _stub({"properties": {"a": {"description": "the\nfirst"}}}, about='It """ends\\" here.\n\nMore.')
    assert text.splitlines()[1:] == ['    """It \\"\\"\\"ends\\\\\\" here.', '    a: the first"""']
    compile(text, "stub", "exec")


def test_a_schema_of_any_size_makes_a_small_stub() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(8):
        deep = {"type": "object", "properties": {"a": deep, "b": deep}}
    wide = {"type": "object", "properties": {f"p{n}": {"type": "object", "properties": {"a": {}}} for n in range(400)}}
    assert len(_stub({}, deep)) < 20_000
    assert len(_stub({}, wide)) < 30_000
    loop = {"$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"}
    compile(_stub({}, loop), "stub", "exec")


def test_names_are_wire_names_where_python_has_them() -> None:
    assert function_names(["shop__order", "a-b", "a_b", "list", "class", "1st"]) == {
        "shop__order": "shop__order",
        "a_b": "a_b",
        "_1st": "1st",
        "a_b_": "a-b",
        "class_": "class",
        "list_": "list",
    }


@pytest.mark.anyio
async def test_functions_are_found_by_what_they_do(serve: Serve) -> None:
    async with serve() as opened:
        tools = opened.host.executor_for(ADA)
        found = (await tools.call("find_functions", query="what does an item cost")).output
        assert "async def price(*, item: str, count: int = ...) -> Result_price:" in found
        assert "class Result_price(TypedDict):\n    item: str\n    cents: int" in found
        assert "async def order" not in (await tools.call("find_functions", query="order an item")).output
        assert "there are 6" in (await tools.call("find_functions", query="zzz")).output


def _run_code(opened: Any) -> ToolDefinition:
    return opened.host.executor_for(ADA).catalog["run_code"].definition


@pytest.mark.anyio
async def test_few_functions_are_in_the_description_as_their_caller_may_call_them(serve: Serve) -> None:
    async with serve(tools={"order": "ask"}) as opened:
        said = _run_code(opened)
        for name in ("price", "order", "text"):
            assert f"async def {name}(" in said.description
        assert "class Result_price(TypedDict):" in said.description
        for name in ("remember", "run_code", "find_functions"):
            assert f"async def {name}(" not in said.description
        digest = said.ref.digest
    async with serve({"callers": ["price"]}) as opened:
        assert _run_code(opened).description.count("async def ") == 1
    # The digest is that of the tool, whatever its caller has besides.
    async with serve({"callers": ["nothing"]}) as opened:
        said = _run_code(opened)
        assert ("async def" in said.description, said.ref.digest) == (False, digest)


@pytest.mark.anyio
async def test_an_agent_sees_the_functions_that_it_may_call(serve: Serve) -> None:
    toolsets = {
        "shop": {"from": "provider:shop", "prefix": "goods"},
        "scripts": {"from": "provider:code", "prefix": "scripts"},
    }
    agents = {"clerk": {"toolsets": ["shop", "scripts"]}, "guest": {"toolsets": ["scripts"]}}
    async with serve(toolsets=toolsets, agents=agents) as opened:
        texts: dict[str, str] = {}
        for agent in agents:
            tools = opened.host.executor_for(ADA, agent=agent)
            catalog = await open_catalog(tools)
            texts[agent] = catalog["scripts.run_code"].definition.description
        assert "async def goods__price(" in texts["clerk"]
        assert "async def" not in texts["guest"]


@pytest.mark.anyio
@pytest.mark.parametrize(("count", "listed"), [(20, True), (21, False)])
async def test_many_functions_are_searched(serve: Serve, count: int, listed: bool) -> None:
    def function(n: int) -> Any:
        async def price(self: object) -> int:
            """Say what it costs."""
            return n

        return tool(name=f"price_{n}", read_only=True)(price)

    many = type("Many", (Shop,), {f"price_{n}": function(n) for n in range(count)})
    async with serve({"callers": ["price_*"]}, shop=many()) as opened:
        assert ("async def price_0()" in _run_code(opened).description) is listed
