"""`@tool`: which methods become tools, what their definitions say and how they are reached."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

import pytest
from pydantic import BaseModel, Field

from toolplug.catalog.call import CallContext, Principal, ToolCall
from toolplug.catalog.definition import Hosted, ToolHints
from toolplug.catalog.schema import Schema
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import BoundTool, bound_tools, tool
from toolplug.providers.provider import FunctionProvider


def the_tool(provider: FunctionProvider) -> BoundTool:
    (bound,) = bound_tools(provider)
    return bound


def called(bound: BoundTool, context: CallContext | None = None, **arguments: object) -> Any:
    call = ToolCall(id="c1", name=bound.definition.name, arguments=arguments)
    return bound.target(call, context or CallContext())


@pytest.mark.requirement("C-12-tool-forms")
@pytest.mark.anyio
async def test_an_asynchronous_method_is_called_by_its_coroutine_and_nothing_else() -> None:
    class Greeter(FunctionProvider):
        @tool
        async def greet(self, name: str) -> str:
            return f"Hello, {name}"

    bound = the_tool(Greeter())
    coroutine = called(bound, name="Ada")
    assert (bound.blocking, bound.wants_context, bound.convert) == (False, False, None)
    assert inspect.iscoroutine(coroutine)
    assert coroutine.cr_code is Greeter.greet.__code__
    assert await coroutine == "Hello, Ada"


@pytest.mark.requirement("C-12-tool-forms")
def test_a_synchronous_method_is_marked_as_blocking() -> None:
    class Greeter(FunctionProvider):
        @tool()
        def greet(self, name: str = "you") -> str:
            return f"Hello, {name}"

    bound = the_tool(Greeter())
    assert bound.blocking
    assert (called(bound), called(bound, name="Ada")) == ("Hello, you", "Hello, Ada")


@pytest.mark.requirement("C-12-tool-forms", "C-12-tool-hints", "C-12-tool-stub", "C-12-tool-timeout")
def test_what_stands_in_the_decorator_reaches_the_definition() -> None:
    class StubOptions(BaseModel):
        size: int = Field(1, le=9)

    class Finder(FunctionProvider):
        @tool(
            name="find-it",
            title="Find it",
            description="Finds it.",
            read_only=True,
            idempotent=True,
            destructive=False,
            stub=["finder", "finder_2026"],
            stub_options=StubOptions,
            timeout="1.5s",
        )
        def find(self) -> str:
            """Is not shown."""
            return ""

    definition = the_tool(Finder()).definition
    assert (definition.name, definition.description, definition.timeout_s) == ("find-it", "Finds it.", 1.5)
    assert definition.title == "Find it"
    assert definition.hints == ToolHints(read_only=True, idempotent=True, destructive=False)
    options = {
        "properties": {"size": {"default": 1, "maximum": 9, "type": "integer"}},
        "type": "object",
        "additionalProperties": False,
    }
    assert definition.hosted == Hosted(("finder", "finder_2026"), Schema(options))


@pytest.mark.requirement("C-12-tool-stub")
def test_stub_options_may_be_a_json_schema_and_take_no_other_keys_unless_it_says_so() -> None:
    open_schema = {"type": "object", "properties": {}, "additionalProperties": True}

    class Finder(FunctionProvider):
        @tool(stub="closed", stub_options={"type": "object", "properties": {"size": {"type": "integer"}}})
        def closed(self) -> None: ...

        @tool(stub="open", stub_options=open_schema)
        def open(self) -> None: ...

        @tool(stub="none")
        def none(self) -> None: ...

    hosted = [bound.definition.hosted for bound in bound_tools(Finder())]
    closed, opened, none = [item.options if item else None for item in hosted]
    assert closed is not None
    assert closed.value["additionalProperties"] is False
    assert opened == Schema(open_schema)
    assert none is None


@pytest.mark.requirement("C-1-order")
def test_tools_are_listed_in_the_order_of_definition_base_classes_first() -> None:
    class First(FunctionProvider):
        @tool
        def zebra(self) -> None: ...

        @tool
        def apple(self) -> None: ...

    class Second(First):
        @tool
        def moth(self) -> None: ...

        @tool
        def apple(self) -> None:
            """Has changed."""

        @tool
        def ant(self) -> None: ...

    definitions = [bound.definition for bound in bound_tools(Second())]
    assert [item.name for item in definitions] == ["zebra", "apple", "moth", "ant"]
    assert definitions[1].description == "Has changed."


def test_an_override_without_the_decorator_is_no_tool() -> None:
    class First(FunctionProvider):
        @tool
        def find(self) -> None: ...

    class Second(First):
        def find(self) -> None: ...

    assert bound_tools(Second()) == []


def test_tools_may_come_from_a_class_that_is_no_provider() -> None:
    class Findable:
        @tool
        def find(self) -> str:
            return "found"

    class Provider(Findable, FunctionProvider): ...

    assert called(the_tool(Provider())) == "found"


@pytest.mark.anyio
async def test_static_and_class_methods_may_be_tools_with_the_decorators_in_either_order() -> None:
    class Provider(FunctionProvider):
        @tool
        @staticmethod
        def one(text: str) -> str:
            return text

        @staticmethod
        @tool
        def two(text: str) -> str:
            return text

        @classmethod
        @tool
        async def three(cls, text: str) -> str:
            return f"{cls.__name__} {text}"

    one, two, three = bound_tools(Provider())
    assert (called(one, text="a"), called(two, text="b"), await called(three, text="c")) == ("a", "b", "Provider c")


@pytest.mark.anyio
async def test_another_decorator_around_a_tool_leaves_it_what_it_is() -> None:
    def shouting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def louder(*arguments: Any, **named: Any) -> Any:
            return function(*arguments, **{name: value.upper() for name, value in named.items()})

        return louder

    class Provider(FunctionProvider):
        @tool
        @shouting
        async def inside(self, text: str) -> str:
            return text

        @shouting
        @tool
        async def outside(self, text: str) -> str:
            return text

    inside, outside = bound_tools(Provider())
    assert inside.definition.parameters == outside.definition.parameters
    assert (inside.blocking, outside.blocking) == (False, False)
    assert (await called(inside, text="a"), await called(outside, text="b")) == ("A", "B")


@pytest.mark.requirement("C-12-tool-context")
@pytest.mark.anyio
async def test_the_context_reaches_the_parameter_that_is_annotated_with_it() -> None:
    class Provider(FunctionProvider):
        @tool
        async def who(self, context: CallContext) -> str:
            return context.principal.subject

        @tool
        async def perhaps(self, greeting: str, *, where: CallContext | None = None) -> str:
            return f"{greeting} {where.principal.subject if where else 'nobody'}"

    who, perhaps = bound_tools(Provider())
    ada = CallContext(principal=Principal(subject="ada"))
    assert (who.wants_context, perhaps.wants_context) == (True, True)
    assert "where" not in perhaps.definition.parameters.value["properties"]  # type: ignore[operator]
    assert await called(who, ada) == "ada"
    assert await called(perhaps, ada, greeting="Hello") == "Hello ada"


def test_two_instances_have_their_own_tools_with_the_same_definition() -> None:
    class Provider(FunctionProvider):
        @tool
        def whose(self) -> str:
            return self.key

    one, two = Provider(key="one"), Provider(key="two")
    assert (called(the_tool(one)), called(the_tool(two))) == ("one", "two")
    assert the_tool(one).definition is the_tool(two).definition


def _stream(self: object) -> Iterator[str]:
    yield "a"


async def _follow(self: object) -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize("method", [_stream, _follow])
def test_a_generator_is_refused_as_its_result_could_not_be_one_value(method: Callable[..., object]) -> None:
    with pytest.raises(InvalidDefinition, match=r"Provider\.read has a `yield`; return all of it, such as a list"):
        type("Provider", (FunctionProvider,), {"read": tool(method)})


def test_a_generator_that_its_decorator_makes_one_value_of_is_a_tool() -> None:
    def collect(method: Callable[..., Iterator[str]]) -> Callable[..., list[str]]:
        return wraps(method)(lambda self: list(method(self)))

    class Provider(FunctionProvider):
        read = tool(collect(_stream))

    assert called(the_tool(Provider())) == ["a"]


@pytest.mark.requirement("C-1-provider-tool-name")
@pytest.mark.parametrize("name", ["", "a.b", "with space", "x" * 65, "naïve", "trailing\n"])
def test_an_illegal_name_is_refused_with_class_and_method(name: str) -> None:
    with pytest.raises(InvalidDefinition) as raised:

        class Provider(FunctionProvider):
            @tool(name=name)
            def method(self) -> None: ...

    assert "Provider.method" in str(raised.value)
    assert repr(name) in str(raised.value)


def test_two_methods_of_one_tool_name_are_refused_with_both() -> None:
    with pytest.raises(InvalidDefinition, match="the methods 'first' and 'second' are both the tool 'first'"):

        class Provider(FunctionProvider):
            @tool
            def first(self) -> None: ...

            @tool(name="first")
            def second(self) -> None: ...


def test_two_tool_decorators_of_one_method_are_refused_with_its_line() -> None:
    with pytest.raises(InvalidDefinition) as raised:

        class Provider(FunctionProvider):
            @tool(name="first")
            @tool(name="second")
            def method(self) -> None: ...

    method = "test_two_tool_decorators_of_one_method_are_refused_with_its_line.<locals>.Provider.method"
    assert str(raised.value).startswith(f"{method} has two @tool with different arguments at {__file__}:")
    assert str(raised.value).endswith("; keep one, and for a second name write another method that calls this one")


def test_a_function_is_decorated_again_after_a_reload_and_around_a_tool() -> None:
    def find(text: str) -> str:
        return text

    # Each generation of a module that has `tool(library.find)` in its class decorates the same function.
    for name in ("first", "second"):
        provider = type("Provider", (FunctionProvider,), {"find": staticmethod(tool(name=name)(find))})
        assert the_tool(provider()).definition.name == name

    @tool(name="inner")
    def inner(text: str) -> str:
        return text

    @tool(name="outer")
    @wraps(inner)
    def outer(text: str) -> str:
        return inner(text)

    both = type("Provider", (FunctionProvider,), {"one": staticmethod(inner), "other": staticmethod(outer)})
    assert [bound.definition.name for bound in bound_tools(both())] == ["inner", "outer"]


@pytest.mark.parametrize("name", ["execute", "start", "aclose", "key", "config", "log", "before_call"])
def test_a_tool_method_cannot_take_the_place_of_what_every_provider_has(name: str) -> None:
    with pytest.raises(InvalidDefinition, match=rf"Provider.{name}: .* write @tool\(name='{name}'\)"):
        type("Provider", (FunctionProvider,), {name: tool(lambda self: None)})


@pytest.mark.requirement("C-12-tool-timeout")
@pytest.mark.parametrize("timeout", [0, "0s", -1, "soon", "5 parsecs"])
def test_a_timeout_that_is_no_time_is_refused(timeout: float | str) -> None:
    with pytest.raises(InvalidDefinition, match=r"@tool\(timeout="):
        tool(timeout=timeout)


def test_stub_options_that_are_no_schema_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"is a pydantic model or a JSON Schema, not \('size',\)"):
        tool(stub="notes", stub_options=("size",))  # type: ignore[call-overload]


def test_stub_options_without_a_stub_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match="needs stub="):
        tool(stub_options={})


def test_the_decorator_stands_above_methods_only() -> None:
    with pytest.raises(InvalidDefinition, match="decorates a method"):
        tool(int)


def test_a_description_over_the_limit_is_refused_with_class_and_method() -> None:
    with pytest.raises(InvalidDefinition, match=r"Provider\.long: .*8192 are allowed"):

        class Provider(FunctionProvider):
            @tool(description="x" * 8193)
            def long(self) -> None: ...
