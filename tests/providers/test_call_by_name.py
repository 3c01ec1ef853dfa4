"""`call`: a tool by its name, with named arguments or a mapping, on every executor."""

from __future__ import annotations

from typing import Any

import pytest

from toolplug import CallContext, FunctionRegistry, Principal, ToolCall, ToolStatus, open_host, tool
from toolplug.client import Application

pytestmark = pytest.mark.anyio


@tool
def price(item: str, count: int = 1) -> dict[str, Any]:
    """Return the price of items."""
    return {"item": item, "count": count}


@tool
def echo(name: str, arguments: str, context: str = "none") -> str:
    """Return what it got: its parameters have the names of those of `call`."""
    return f"{name} {arguments} {context}"


@tool
def caller(context: CallContext) -> str:
    """Return who calls."""
    return context.principal.subject


@pytest.mark.requirement("I33-7-call")
async def test_a_tool_is_called_by_its_name() -> None:
    async with FunctionRegistry([price, echo, caller]) as registry:
        assert (await registry.call("price", item="tea")).structured == {"item": "tea", "count": 1}
        assert (await registry.call("price", {"item": "tea", "count": 2})).structured == {"item": "tea", "count": 2}
        assert (await registry.call("echo", name="a", arguments="b", context="c")).output == "a b c"
        ada = CallContext(Principal("ada"))
        assert (await registry.call("caller", {}, ada)).output == "ada"
        assert (await registry.call("caller", context=ada)).output == "ada"
        assert (await registry.call("caller")).output == "anonymous"
        first, second = await registry.call("caller"), await registry.call("caller")
        assert first.call_id.startswith("call_")
        assert first.call_id != second.call_id


@pytest.mark.requirement("I33-7-call")
async def test_every_failure_of_a_call_is_a_result() -> None:
    async with FunctionRegistry([price]) as registry:
        unknown = await registry.call("prise", item="tea")
        assert unknown.status is ToolStatus.UNKNOWN_TOOL
        wrong = await registry.call("price", itme="tea")
        assert wrong.status is ToolStatus.INVALID_ARGUMENTS
        assert (await registry.call("price", {"item": object()})).status is ToolStatus.INVALID_ARGUMENTS


@pytest.mark.requirement("I33-7-call")
async def test_the_executor_of_a_caller_has_it_too() -> None:
    async with open_host({"store": "memory://"}, environ={}, providers={"shop": price}) as host:
        tools = host.executor_for(Principal("ada", scopes=frozenset({"tools:call"})))
        assert (await tools.call("price", item="tea")).structured == {"item": "tea", "count": 1}
        with pytest.raises(TypeError, match=r"await tools\.call"):
            await tools.execute({"name": "price"})  # type: ignore[arg-type]


@pytest.mark.requirement("I33-7-words")
@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((7,), {}, "the first argument is the name of a tool, not int; to call by name: await tools.call"),
        ((ToolCall("c", "price", {}),), {}, "not ToolCall; a ToolCall goes to execute"),
        (("price", {"item": "tea"}), {"count": 2}, "price: give the arguments in one mapping or by name; count came"),
        (("price", "tea"), {}, "price: the arguments are a mapping, or named ones, not str"),
        (("price", {}, Principal("ada")), {}, r"not Principal \(a principal goes into one: CallContext\(principal\)\)"),
        (("price", {}, 3), {}, "the context is a CallContext, not int$"),
    ],
)
async def test_what_is_no_call_is_said_in_words(arguments: tuple[Any, ...], named: dict[str, Any], said: str) -> None:
    async with FunctionRegistry([price]) as registry:
        with pytest.raises(TypeError, match=said):
            await registry.call(*arguments, **named)


@pytest.mark.requirement("I33-7-words")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("price", {"item": "tea"}), "execute takes a ToolCall, not str"),
        ((ToolCall("c", "price", {}), Principal("ada")), r"not Principal \(a principal goes into one: CallContext"),
        ((ToolCall("c", "nothing", {}), {}), "the context is a CallContext, not dict$"),
        (
            ("price",),
            r"execute takes a ToolCall, not str; to call by name: await tools.call\('price', argument=value\)",
        ),
        (({"name": "price"},), r'execute takes a ToolCall, not dict; to call by name: await tools.call\("NAME"'),
    ],
)
async def test_execute_says_what_it_takes(given: tuple[Any, ...], said: str) -> None:
    async with FunctionRegistry([price]) as registry:
        with pytest.raises(TypeError, match=said):
            await registry.execute(*given)


@pytest.mark.requirement("I33-7-slips")
def test_with_in_place_of_async_with_is_said_in_words() -> None:
    application = Application("http://127.0.0.1:9", plugin_type="shop")
    for entered in (FunctionRegistry([price]), open_host({"store": "memory://"}), application):
        said = f"{type(entered).__name__} is entered with `async with`, in an `async def`"
        with pytest.raises(TypeError, match=said), entered:  # type: ignore[attr-defined]
            pass


@pytest.mark.requirement("I33-7-slips")
@pytest.mark.parametrize(
    ("called", "option", "said"),
    [
        (tool, "readonly", "tool has no option 'readonly'; nearest: 'read_only'"),
        (open_host, "provider", "open_host has no option 'provider'; nearest: 'providers'"),
        (FunctionRegistry, "x", "FunctionRegistry has no option 'x'; it has providers, metrics, services"),
        (Application, "pluginType", "Application has no option 'pluginType'; nearest: 'plugin_type'"),
    ],
)
def test_a_misspelt_option_is_told_the_nearest_one(called: Any, option: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        called(**{option: True})
