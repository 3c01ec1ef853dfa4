"""What a tool executor is, and what a loop around a model needs of one: its tools, and the answers to its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, data_url, is_image, text_of_result
from toolplug.catalog.catalog import Catalog, CatalogDiff
from toolplug.catalog.strict import strict_schema, without_nulls
from toolplug.errors import InvalidArguments
from toolplug.signatures.values import as_object, decoded

Listener = Callable[[CatalogDiff], None]
Unsubscribe = Callable[[], None]


@runtime_checkable
class ToolExecutor(Protocol):
    """A live catalog: the interface of the registry, a toolset, an agent's view and a session.

    Hold executors, not catalogs: the next call must see what has been disabled or revoked.
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


Message = dict[str, Any]
_Read = Callable[[Any], ToolCall | None]


class ModelTools(ToolExecutor, Protocol):
    """A tool executor with what a loop around a model's API needs. Every executor of toolplug is one."""

    __slots__ = ()

    @property
    def closed_because(self) -> str:
        """The reason why no tool can be called, as the owner has not opened the executor; empty when it has."""
        return ""

    def for_openai(self, api: Literal["chat", "responses"] = "chat", *, strict: bool = False) -> list[Message]:
        """Return the tools as the `tools` of OpenAI's Chat Completions or Responses API.

        With `strict`, each tool whose schema can be rewritten for strict mode is; the others stay as they are. Raises
        `RuntimeError` if the registry of the tools is not entered, as the other two do.
        """
        tools: list[Message] = orjson.loads(entered_catalog(self).render(api))
        if strict:
            for function in _functions(tools):
                schema = strict_schema(function["parameters"])
                if schema is not None:
                    function.update(parameters=schema, strict=True)
        return tools

    def for_anthropic(self, *, strict: bool = False) -> list[Message]:
        """Return the tools as the `tools` of Anthropic's Messages API.

        With `strict`, each tool whose schema can be rewritten for strict mode is; the others stay as they are.
        """
        tools: list[Message] = orjson.loads(entered_catalog(self).render("anthropic"))
        if strict:
            for function in tools:
                schema = strict_schema(function["input_schema"]) if "input_schema" in function else None
                if schema is not None:
                    function.update(input_schema=schema, strict=True)
        return tools

    def for_gemini(self) -> list[Message]:
        """Return the tools as the `tools` of the Gemini API: one, with a declaration for each function."""
        catalog = entered_catalog(self)
        return [{"functionDeclarations": orjson.loads(catalog.render("gemini"))}] if catalog else []

    async def answer(self, calls: Iterable[object] | None, context: CallContext | None = None) -> list[Message]:
        """Run the calls of one turn of a model side by side, and return the messages that answer them, in order.

        `calls` are the SDK's objects or their JSON: `message.tool_calls` of Chat Completions, `response.output` of the
        Responses API, `message.content` of Anthropic, `response.function_calls` of Gemini; None where there are none.
        Texts, thoughts and calls that the API has made itself are passed over. A null for an optional parameter that
        takes none counts as absent, as strict mode asks for. Raises `TypeError` for what is no item of these APIs and
        `ValueError` for a call that is not of a function.
        """
        found = [(api, call) for item in calls or () for api, call in _read(item)]
        made = [without_absent(self.catalog, call) for _, call in found]
        results = await asyncio.gather(*(self.execute(call, context) for call in made))
        answers: list[Message] = []
        for api in dict.fromkeys(api for api, _ in found):
            answers += api.messages(
                [
                    result._replace(name=call.name)  # that of `call_tool` is the name of the tool that it calls
                    for (each, call), result in zip(found, results, strict=True)
                    if each is api
                ]
            )
        return answers


def entered_catalog(executor: ToolExecutor) -> Catalog:
    """Return the current catalog, for a model. Raises `RuntimeError` if the registry of its tools is not entered."""
    reason: str = getattr(executor, "closed_because", "")
    if reason:
        raise RuntimeError(f"there are no tools yet: {reason}")
    return executor.catalog


def _functions(tools: Iterable[Message]) -> Iterator[Message]:
    """Yield the functions of OpenAI's tools, those of namespaces too."""
    for tool in tools:
        if tool["type"] == "namespace":
            yield from tool["tools"]
        elif tool["type"] == "function":
            yield tool.get("function", tool)


class _Api(NamedTuple):
    """How one API writes a function call, and the messages that answer several."""

    read: Callable[[object], ToolCall]
    messages: Callable[[Sequence[ToolResult]], list[Message]]


def _field(item: object, name: str) -> Any:
    return cast("Mapping[str, Any]", item).get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _read(item: object) -> list[tuple[_Api, ToolCall]]:
    kind = _field(item, "type")
    if kind is None and isinstance(_field(item, "name"), str):
        kind = _GEMINI
    if not isinstance(kind, str):
        raise TypeError(f"{item!r} is no item of a model's answer; give message.tool_calls or response.output")
    if kind in _UNANSWERED:
        raise ValueError(f"an item of type {kind!r} is no function call; answer it yourself and leave it out here")
    if kind == _SEARCH and _field(item, "execution") == "client":
        raise ValueError(f"an item of type {kind!r} with execution: client is a search of yours; answer it yourself")
    api = _APIS.get(kind)
    return [] if api is None else [(api, api.read(item))]


def without_absent(catalog: Catalog, call: ToolCall) -> ToolCall:
    """Return the call without nulls for optional parameters that take none: so models in strict mode say *absent*.

    A call that cannot be read, or of a tool that is not listed, is returned as it is.
    """
    tool = catalog.find(call.name)
    try:
        arguments = decoded(call.arguments)
    except InvalidArguments:
        return call
    if tool is None or None not in _values(arguments):
        return call
    return call._replace(arguments=as_object(without_nulls(tool.definition.parameters.value, arguments)))


def _values(value: object) -> Iterable[object]:
    """Every value in a JSON document."""
    waiting = [value]
    for item in waiting:
        if isinstance(item, dict):
            waiting += cast("dict[str, object]", item).values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
        else:
            yield item


def _chat_call(item: object) -> ToolCall:
    function = _field(item, "function")
    return ToolCall(_field(item, "id"), _field(function, "name"), _field(function, "arguments"))


def _chat_messages(results: Sequence[ToolResult]) -> list[Message]:
    return [{"role": "tool", "tool_call_id": each.call_id, "content": text_of_result(each)} for each in results]


def _responses_call(item: object) -> ToolCall:
    name, namespace = _field(item, "name"), _field(item, "namespace")
    return ToolCall(_field(item, "call_id"), f"{namespace}__{name}" if namespace else name, _field(item, "arguments"))


def _responses_messages(results: Sequence[ToolResult]) -> list[Message]:
    return [
        {"type": "function_call_output", "call_id": each.call_id, "output": _responses_output(each)} for each in results
    ]


def _responses_output(result: ToolResult) -> str | list[Message]:
    images = [{"type": "input_image", "image_url": data_url(part)} for part in result.parts if is_image(part)]
    text = text_of_result(result)
    return [{"type": "input_text", "text": text}, *images] if images else text


def _anthropic_call(item: object) -> ToolCall:
    return ToolCall(_field(item, "id"), _field(item, "name"), _field(item, "input"))


def _anthropic_messages(results: Sequence[ToolResult]) -> list[Message]:
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": each.call_id,
            "content": [{"type": "text", "text": text_of_result(each) or "(no output)"}, *_anthropic_images(each)],
            "is_error": each.is_error,
        }
        for each in results
    ]
    return [{"role": "user", "content": blocks}]


def _anthropic_images(result: ToolResult) -> list[Message]:
    return [
        {"type": "image", "source": {"type": "base64", "media_type": part["mimeType"], "data": part["data"]}}
        for part in result.parts
        if is_image(part)
    ]


def _gemini_call(item: object) -> ToolCall:
    return ToolCall(_field(item, "id") or "", _field(item, "name"), _field(item, "args") or {})


def _gemini_messages(results: Sequence[ToolResult]) -> list[Message]:
    parts = [
        {
            "functionResponse": {
                **({"id": each.call_id} if each.call_id else {}),
                "name": each.name,
                "response": {"error" if each.is_error else "output": text_of_result(each)},
            }
        }
        for each in results
    ]
    return [{"role": "user", "parts": parts}]


_GEMINI = "gemini"
_SEARCH = "tool_search_call"
_APIS: Mapping[str, _Api] = {
    "function": _Api(_chat_call, _chat_messages),
    "function_call": _Api(_responses_call, _responses_messages),
    "tool_use": _Api(_anthropic_call, _anthropic_messages),
    _GEMINI: _Api(_gemini_call, _gemini_messages),
}
"""By the type of the item; an item of Gemini has none."""
_UNANSWERED = frozenset(
    {"custom", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Calls that wait for an answer of the caller's and are not of functions."""
