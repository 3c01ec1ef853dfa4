"""What a tool executor is, and what a loop around a model needs of one: its tools, and the answers to its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from secrets import token_hex
from types import CoroutineType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, overload, runtime_checkable

import orjson

from toolplug import library_types
from toolplug.catalog.call import (
    ANONYMOUS_CONTEXT,
    EMPTY,
    CallContext,
    Principal,
    ToolCall,
    ToolResult,
    no_report,
)
from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.execution.accounting import audit_via
from toolplug.execution.results import timed_out

Message: TypeAlias = Any
"""A tool, or a message, as the API of a model's vendor takes it: an object, for which each SDK has its own type."""

_MODEL_APIS = "toolplug.model_apis.messages"
"""Loaded when a program asks for a vendor's format: a host that serves MCP and HTTP needs none."""
_CONVERSATION = "toolplug.search.conversation"
"""Above this layer, and for loops of one's own alone."""

Listener = Callable[[CatalogDiff], None]
Unsubscribe = Callable[[], None]

T = TypeVar("T")


@runtime_checkable
class ToolExecutor(Protocol):
    """A live catalog: the interface of the registry, a toolset, an agent's view and a session.

    Hold executors, not catalogs: the next call must see what has been disabled or revoked.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ToolCall, ToolExecutor, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def first_answer(tools: ToolExecutor, arguments: dict) -> str:
        name = next(iter(tools.catalog))
        return (await tools.execute(ToolCall("call_1", name, arguments))).output

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert await first_answer(registry, {"item": "tea"}) == "tea: 3.50 EUR"

    asyncio.run(main())
    ```
    """

    __slots__ = ()

    @property
    def catalog(self) -> Catalog:
        """The current catalog; the same object until something changes. Reading it does no I/O."""
        ...

    def can_execute(self, name: str) -> bool:
        """Return True for exactly the names in the catalog (canonical or wire)."""
        ...

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Run one call. Every failure is a result; only the caller's own cancellation is raised.

        Without `context` the caller is the principal that the executor was made for, else an anonymous one.
        """
        ...

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference, in order and never from within another; what it raises is logged."""
        ...


class ModelTools(ToolExecutor, Protocol):
    """A tool executor with what a loop around a model's API needs. Every executor of toolplug is one.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ModelTools, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def turn(tools: ModelTools, tool_calls: list[dict]) -> list[dict]:
        return await tools.answer(tool_calls)  # the messages to send next

    CALL = {"id": "1", "type": "function", "function": {"name": "price", "arguments": '{"item": "tea"}'}}

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert await turn(registry, [CALL]) == [{"role": "tool", "tool_call_id": "1", "content": "tea: 3.50 EUR"}]

    asyncio.run(main())
    ```
    """

    __slots__ = ()

    @property
    def closed_because(self) -> str:
        """The reason why no tool can be called, as the owner has not opened the executor; empty when it has."""
        return ""

    @overload
    async def call(
        self, name: str, arguments: Mapping[str, object], context: CallContext | None = None, /
    ) -> ToolResult: ...

    @overload
    async def call(self, name: str, /, **arguments: object) -> ToolResult: ...

    async def call(
        self, name: object, arguments: object = None, context: object = None, /, **named: object
    ) -> ToolResult:
        """Call a tool by its name, as a program does: `await registry.call("price", item="tea")`.

        The arguments are named ones, or a mapping with the context after it. Every failure is a result, as in
        `execute`. Raises `TypeError` for arguments of both kinds, and for what is no text, mapping or context.
        """
        if not isinstance(name, str):
            raise TypeError(f"the first argument is the name of a tool, not {type(name).__name__}{_instead(name)}")
        if isinstance(named.get("context"), CallContext) and context is None:  # no tool has such an argument
            context = named.pop("context")
        if arguments is not None and named:
            besides = ", ".join(named)
            raise TypeError(f"{name}: give the arguments in one mapping or by name; {besides} came beside the mapping")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise TypeError(f"{name}: the arguments are a mapping, or named ones, not {type(arguments).__name__}")
        if context is not None and not isinstance(context, CallContext):
            raise no_context(context)
        given = named if arguments is None else cast("Mapping[str, object]", arguments)
        return await self.execute(ToolCall(f"call_{token_hex(8)}", name, given), context)

    def for_openai(self, api: Literal["chat", "responses"] = "chat", *, strict: bool = False) -> list[Message]:
        """Return the tools as the `tools` of OpenAI's Chat Completions or Responses API.

        With `strict`, each tool whose schema can be rewritten for strict mode is; the others stay as they are. Raises
        `RuntimeError` if the registry of the tools is not entered, as the other two do.
        """
        tools: list[Message] = orjson.loads(entered_catalog(self).render(api))
        if strict:
            import_module(_MODEL_APIS).set_strict_openai(tools)
        return tools

    def for_anthropic(self, *, strict: bool = False) -> list[Message]:
        """Return the tools as the `tools` of Anthropic's Messages API.

        With `strict`, each tool whose schema can be rewritten for strict mode is; the others stay as they are.
        """
        tools: list[Message] = orjson.loads(entered_catalog(self).render("anthropic"))
        if strict:
            import_module(_MODEL_APIS).set_strict_anthropic(tools)
        return tools

    def for_gemini(self) -> list[Message]:
        """Return the tools as the `tools` of the Gemini API: one, with a declaration for each function."""
        catalog = entered_catalog(self)
        return [{"functionDeclarations": orjson.loads(catalog.render("gemini"))}] if catalog else []

    def within(self, context: CallContext) -> ModelTools:
        """Return these tools for the tool that runs with this context: what it calls is called by its caller."""
        return CallerTools(self, context)

    def conversation(self) -> library_types.ConversationTools:
        """Return the tools for one conversation: a list that stays, and `changes()` for the user's next message.

        So the cache of a model's API stays valid though tools come and go. Raises `ValueError` if there is a tool
        called `call_tool`, and `RuntimeError` as the listings do.
        """
        return import_module(_CONVERSATION).ConversationTools(self)

    async def answer(self, calls: Iterable[object] | None, context: CallContext | None = None) -> list[Message]:
        """Run the calls of one turn of a model side by side, and return the messages that answer them, in order.

        `calls` are the SDK's objects or their JSON: `message.tool_calls` of Chat Completions, `response.output` of the
        Responses API, `message.content` of Anthropic, `response.function_calls` of Gemini; None where there are none.
        Texts, thoughts and calls that the API has made itself are passed over. A null for an optional parameter that
        takes none counts as absent, as strict mode asks for. Raises `TypeError` for what is no item of these APIs and
        `ValueError` for a call that is not of a function.
        """
        return await import_module(_MODEL_APIS).answer_calls(self, calls, context)


def no_call(given: object) -> TypeError:
    """Return the error for what was given to `execute` in place of a call."""
    return TypeError(f"execute takes a ToolCall, not {type(given).__name__}{_instead(given)}")


def no_context(given: object) -> TypeError:
    """Return the error for what was given to `execute` or `call` in place of a context."""
    wanted = " (a principal goes into one: CallContext(principal))" if isinstance(given, Principal) else ""
    return TypeError(f"the context is a CallContext, not {type(given).__name__}{wanted}")


def _instead(given: object) -> str:
    if isinstance(given, ToolCall):
        return "; a ToolCall goes to execute()"
    name = f"{given!r:.80}" if isinstance(given, str) else '"NAME"'
    return f"; to call by name: await tools.call({name}, argument=value)"


def entered_catalog(executor: ToolExecutor) -> Catalog:
    """Return the current catalog, for a model. Raises `RuntimeError` if the registry of its tools is not entered."""
    reason: str = getattr(executor, "closed_because", "")
    if reason:
        raise RuntimeError(f"there are no tools yet: {reason}")
    return executor.catalog


Compose = Callable[[Hashable], ToolExecutor]
"""The caller's whole executor for a session's key, None: for no session."""


def add_listener(listeners: dict[object, T], listener: T) -> Unsubscribe:
    """Add a listener, and return what removes it. Each has a key of its own: the same function may listen twice."""
    key = object()
    listeners[key] = listener

    def remove() -> None:
        listeners.pop(key, None)

    return remove


class DelegatingExecutor(ModelTools):
    """The tools of another executor; a subclass runs their calls."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    @property
    def catalog(self) -> Catalog:
        """The tools that are listed now; opens nothing."""
        return self._executor.catalog

    def can_execute(self, name: str) -> bool:
        """True for exactly the names in the catalog, canonical or wire."""
        return self._executor.can_execute(name)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call the listener with each difference of the catalog."""
        return self._executor.subscribe(listener)


class LazyExecutor(DelegatingExecutor):
    """The caller's executor, which opens the toolsets that may have a name before it answers that the name is unknown.

    Without a session, they are opened for one call or listing, and closed after it.
    """

    def __init__(
        self,
        tools: library_types.AgentTools,
        choice: library_types.Choice,
        session: Hashable,
        compose: Compose,
        default_context: CallContext = ANONYMOUS_CONTEXT,
    ) -> None:
        # Once: the executor of a choice is held weakly, and lives as long as somebody has it.
        super().__init__(compose(session))
        self._tools = tools
        self._choice = choice
        self._session = session
        self._compose = compose
        self._default_context = default_context

    @property
    def listing(self) -> ToolExecutor:
        return self._executor

    def execute(self, call: ToolCall, context: CallContext | None = None) -> CoroutineType[Any, Any, ToolResult]:
        """Run one call; for a name that is not listed, first open the toolsets that may have it."""
        if context is None:
            context = self._default_context
        if self._tools.some_wait:
            try:
                tool = self._executor.catalog.find(call.name)
            except AttributeError:
                raise no_call(call) from None
            if tool is None:
                return self._execute_opened(call, context)
            if tool.plan.forward is not None:
                return tool.plan.forward(self, call, context)
        return self._executor.execute(call, context)

    async def open_catalog(self) -> Catalog:
        """Return the catalog after opening all toolsets."""
        async with self._open("", None) as executor:
            return executor.catalog

    async def _execute_opened(self, call: ToolCall, context: CallContext) -> ToolResult:
        began = asyncio.get_running_loop().time()
        try:
            async with self._open(call.name, context.deadline) as executor:
                return await executor.execute(call, context)
        except TimeoutError:
            return timed_out(call, asyncio.get_running_loop().time() - began)

    @asynccontextmanager
    async def _open(self, name: str, deadline: float | None) -> AsyncGenerator[ToolExecutor]:
        """Return the executor with the toolsets that may have the name open. Raises `TimeoutError` at the deadline."""
        if not self._tools.waits(self._choice, self._session, name):
            yield self._executor
            return
        if self._session is not None:
            async with asyncio.timeout_at(deadline):
                await self._tools.open(self._choice, self._session, name)
            yield self._executor
            return
        # A key of its own: what is opened for this one call is found and closed by it.
        session = object()
        executor = self._compose(session)
        try:
            async with asyncio.timeout_at(deadline):
                await self._tools.open(self._choice, session, name)
            yield executor
        finally:
            await self._tools.close(session)


class CallerTools(DelegatingExecutor):
    """The tools of the caller of one call, for the tool that runs: `CallContext.tools`.

    Whatever context a call is given, it is this caller's, in its session, as its agent, with its request's id. The call
    has an approval, an idempotency key, options and progress of its own, and at most the time that the tool has. What
    the context adds to `via` is said in the audit log.
    """

    def __init__(self, tools: ToolExecutor, context: CallContext) -> None:
        super().__init__(tools)
        self._context = context._replace(
            approval=None, idempotency_key=None, options=EMPTY, report=no_report, user_auth=None
        )

    async def execute(self, call: ToolCall, context: CallContext | None = None) -> ToolResult:
        """Run one call as the caller. Every failure is a result."""
        own = self._context
        if context is not None:
            own = own._replace(
                approval=context.approval,
                idempotency_key=context.idempotency_key,
                options=context.options,
                report=context.report,
                deadline=_earlier(own.deadline, context.deadline),
            )
        added = () if context is None else context.via[len(own.via) :]
        if not added:
            return await self._executor.execute(call, own)
        before = audit_via.set(",".join(added))
        try:
            return await self._executor.execute(call, own)
        finally:
            audit_via.reset(before)

    async def open_catalog(self) -> Catalog:
        """Return the catalog after opening every toolset of the caller."""
        return await open_catalog(self._executor)


def _earlier(a: float | None, b: float | None) -> float | None:
    return a if b is None else b if a is None else min(a, b)


async def open_catalog(executor: ToolExecutor) -> Catalog:
    """Return what an executor lists, after opening every toolset that must be opened before it lists anything."""
    return await executor.open_catalog() if isinstance(executor, LazyExecutor | CallerTools) else executor.catalog
