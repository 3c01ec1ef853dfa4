"""`@prompt`: methods of a provider become prompts of the Model Context Protocol."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, cast, overload

from toolplug.catalog.call import CallContext
from toolplug.catalog.exact_json import as_object
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import Marked, marked_methods, with_mark
from toolplug.providers.offering.definitions import NO_COMPLETIONS, Completion, Prompt, PromptArgument
from toolplug.signatures.annotations import Names, UnresolvedAnnotation
from toolplug.signatures.signature import Signature, read_signature

Method = TypeVar("Method", bound=Callable[..., object])


class PromptMark:
    """The mark of `@prompt`. `around` has the names at the class, until its annotations are resolved."""

    def __init__(self, name: str | None, title: str, description: str | None, complete: Mapping[str, Completion]):
        self.name = name
        self.title = title
        self.description = description
        self.complete = complete
        self.around: Names = {}
        self.read: Signature | None = None


@overload
def prompt(function: Method, /) -> Method: ...
@overload
def prompt(
    *,
    name: str | None = None,
    title: str = "",
    description: str | None = None,
    complete: Mapping[str, Completion] = NO_COMPLETIONS,
) -> Callable[[Method], Method]: ...
def prompt(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    title: str = "",
    description: str | None = None,
    complete: Mapping[str, Completion] = NO_COMPLETIONS,
) -> object:
    """Make a method a prompt, which MCP clients offer to their users. Use it bare, or with arguments.

    `name`: replaces the method's name. `title`: a name for people. `description`: replaces the docstring's text.
    `complete`: by argument, the values that clients may suggest, or a function from the typed text to values; those of
    a `Literal` or an enum of texts are suggested without it.

    The method is `async def`, or a plain `def`, which runs in a thread. Its parameters are the arguments, which are
    texts; one annotated `CallContext` receives the context. It returns a text, which becomes a message of the user, or
    a sequence of texts and MCP messages (`{"role": "assistant", "content": "…"}`). Raises `InvalidDefinition`, here or
    when the class is created.
    """

    def mark(method: Method) -> Method:
        return with_mark(method, PromptMark(name, title, description, complete), "@prompt")

    return mark if function is None else mark(function)


def declare_prompts(owner: type, around: Names) -> None:
    """Read the `@prompt` methods of a class that was just created; `around`: the names at the class.

    Raises `InvalidDefinition`, but not for an annotation that cannot be resolved yet.
    """
    seen: dict[str, str] = {}
    for item in marked_methods(owner, PromptMark):
        item.mark.around = item.mark.around or around
        with suppress(UnresolvedAnnotation):
            _definition(owner, item, _unbound)
        name = item.mark.name or item.attribute
        if seen.setdefault(name, item.attribute) != item.attribute:
            raise InvalidDefinition(
                f"{owner.__qualname__}: the methods {seen[name]!r} and {item.attribute!r} are both the prompt {name!r}"
            )


def _unbound(*_: object) -> object:
    raise RuntimeError("this prompt belongs to a class, not to an instance")


def bound_prompts(provider: object) -> Iterator[Prompt]:
    """Yield the `@prompt` methods of an instance, in the order of definition, base classes first."""
    owner = type(provider)
    for item in marked_methods(owner, PromptMark):
        yield _definition(owner, item, getattr(provider, item.attribute))


def _definition(owner: type, item: Marked[PromptMark], method: Callable[..., object]) -> Prompt:
    mark, place = item.mark, f"{owner.__qualname__}.{item.attribute}"
    if mark.read is None:
        mark.read = read_signature(item.method, place, owner, mark.around)
        mark.around = {}
    signature = mark.read
    properties = as_object(signature.parameters.get("properties"))
    required = cast("Sequence[str]", signature.parameters.get("required", ()))
    arguments: list[PromptArgument] = []
    values: dict[str, Completion] = {}
    for name, schema in properties.items():
        texts = check_text_parameter(place, name, signature.parameters, schema)
        if texts:
            values[name] = texts
        description = as_object(schema).get("description")
        arguments.append(PromptArgument(name, str(description or ""), name in required))
    try:
        return Prompt(
            name=item.attribute if mark.name is None else mark.name,
            get=method_call(method, signature, is_async=item.method.is_async),
            title=mark.title,
            description=signature.summary if mark.description is None else mark.description,
            arguments=tuple(arguments),
            completions={**values, **mark.complete},
            schema={**signature.parameters, "additionalProperties": False},
        )
    except InvalidDefinition as error:
        raise InvalidDefinition(f"{place}: {error}") from None


def check_text_parameter(place: str, name: str, whole: Mapping[str, object], schema: object) -> tuple[str, ...]:
    """Return the texts that a parameter is limited to, none for any. Raises `InvalidDefinition` if it takes no text."""
    options = _options(whole, schema)
    texts = tuple(text for option in options for text in option)
    if not options:
        raise InvalidDefinition(
            f"{place}: parameter {name!r} does not take text, and the arguments of prompts and of URIs are texts; "
            "annotate it as str, a Literal of texts or an enum of texts"
        )
    return texts


def _options(whole: Mapping[str, object], schema: object) -> list[Sequence[str]]:
    """Return for each alternative but null the texts that it is limited to; empty if one takes anything but text."""
    node = as_object(schema)
    reference = node.get("$ref")
    if isinstance(reference, str):
        return _options(whole, as_object(whole.get("$defs")).get(reference.rpartition("/")[2]))
    alternatives = node.get("anyOf")
    if isinstance(alternatives, list):
        others = [item for item in cast("list[object]", alternatives) if as_object(item).get("type") != "null"]
        each = [_options(whole, item) for item in others]
        # One alternative that is no text makes the parameter one: clients send texts only.
        return [] if not all(each) else [option for options in each for option in options]
    constants = node.get("enum", [node["const"]] if "const" in node else None)
    if isinstance(constants, list):
        values = cast("list[object]", constants)
        texts = [item for item in values if isinstance(item, str)]
        return [texts] if len(texts) == len(values) else []
    return [()] if node.get("type") == "string" else []


def method_call(
    method: Callable[..., object], signature: Signature, *, is_async: bool
) -> Callable[[Mapping[str, object], CallContext], object]:
    """Return a function of arguments and context that calls the method by its signature."""

    def keywords(arguments: Mapping[str, object], context: CallContext) -> dict[str, object]:
        given = dict(arguments if signature.convert is None else signature.convert(arguments))
        return given if signature.context is None else {**given, signature.context: context}

    if is_async:

        async def get(arguments: Mapping[str, object], context: CallContext) -> object:
            return await cast("Awaitable[object]", method(**keywords(arguments, context)))

        return get
    return lambda arguments, context: method(**keywords(arguments, context))


def messages_of(value: object) -> list[dict[str, object]]:
    """Return what a prompt returned as MCP messages. Raises `TypeError` for anything else."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_message(item) for item in cast("Sequence[object]", value)]
    # Text first: a `str` is a sequence of texts as well, and would become one message for each character.
    if isinstance(value, str) or as_object(value):
        return [_message(value)]
    raise TypeError(f"a prompt returns a text, or a sequence of texts and messages, not {type(value).__name__}")


def _message(value: object) -> dict[str, object]:
    if isinstance(value, str):
        return {"role": "user", "content": {"type": "text", "text": value}}
    message = as_object(value)
    role, content = message.get("role"), message.get("content")
    block = {"type": "text", "text": content} if isinstance(content, str) else dict(as_object(content))
    if role not in ("user", "assistant") or not block:
        found = f"a mapping with {', '.join(map(repr, message))}" if message else type(value).__name__
        raise TypeError(f"a message is a text, or has a role (user, assistant) and content, unlike {found}")
    return {"role": role, "content": block}


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(inspect.unwrap(function))
