"""`@prompt` and `@resource`: methods of a provider become prompts and resources of the Model Context Protocol."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast, overload

from toolplug.catalog.call import CallContext
from toolplug.catalog.exact_json import as_object
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import Marked, check_once, marked_methods, with_mark
from toolplug.providers.offering.definitions import NO_COMPLETIONS, Completion, Prompt, PromptArgument, Resource
from toolplug.signatures.annotations import Names, UnresolvedAnnotation
from toolplug.signatures.signature import Signature, read_signature
from toolplug.signatures.values import as_json, why_not_json

Method = TypeVar("Method", bound=Callable[..., object])


class OfferMark:
    """A mark of `@prompt` or `@resource`. `around` has the names at the class, until its annotations are resolved."""

    def __init__(self) -> None:
        self.around: Names = {}
        self._read: Signature | None = None

    def read(self, owner: type, item: Marked[Any]) -> Signature:
        """Return the signature of the method, which is read once."""
        if self._read is None:
            self._read = read_signature(item.method, _place(owner, item), owner, self.around)
            self.around = {}
        return self._read


class PromptMark(OfferMark):
    """The arguments of `@prompt`."""

    def __init__(self, name: str | None, title: str, description: str | None, complete: Mapping[str, Completion]):
        super().__init__()
        self.name = name
        self.title = title
        self.description = description
        self.complete = complete


class ResourceMark(OfferMark):
    """The arguments of `@resource`, as a resource that cannot be read yet."""

    def __init__(self, declared: Resource, described: bool) -> None:
        super().__init__()
        self.declared = declared
        self.described = described


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


def resource(
    uri: str,
    /,
    *,
    name: str = "",
    title: str = "",
    description: str | None = None,
    mime_type: str = "",
    size: int | None = None,
    complete: Mapping[str, Completion] = NO_COMPLETIONS,
) -> Callable[[Method], Method]:
    """Make a method a resource of this URI, or a template if the URI has variables: `@resource("notes://{id}")`.

    `name`: a short name, by default the method's. `title`: a name for people. `description`: replaces the docstring's
    text. `mime_type`: by default `text/plain` for text, `application/octet-stream` for bytes and `application/json` for
    any other value. `size`: the number of bytes, if it is known. `complete`: by variable, the values that clients may
    suggest, or a function from the typed text to values.

    The method is `async def`, or a plain `def`, which runs in a thread. Its parameters are the variables of the URI,
    which are texts; one annotated `CallContext` receives the context. It returns text, bytes, or a JSON value. Raises
    `InvalidDefinition`, here or when the class is created.
    """
    declared = Resource(
        uri=uri,
        read=_unbound,
        name=name,
        title=title,
        description=description or "",
        mime_type=mime_type,
        size=size,
        completions=complete,
    )
    return lambda method: with_mark(method, ResourceMark(declared, description is not None), "@resource")


def declare_offers(owner: type, around: Names) -> None:
    """Read the `@prompt` and `@resource` methods of a class that was just created; `around`: the names at the class.

    Raises `InvalidDefinition`, but not for an annotation that cannot be resolved yet.
    """
    seen: dict[str, str] = {}
    for prompted in marked_methods(owner, PromptMark):
        prompted.mark.around = prompted.mark.around or around
        with suppress(UnresolvedAnnotation):
            _prompt(owner, prompted, _unbound)
        check_once(owner, seen, prompted.attribute, f"the prompt {prompted.mark.name or prompted.attribute!r}")
    for read in marked_methods(owner, ResourceMark):
        read.mark.around = read.mark.around or around
        with suppress(UnresolvedAnnotation):
            _resource(owner, read, _unbound)
        check_once(owner, seen, read.attribute, f"the resource {read.mark.declared.uri!r}")


def _unbound(*_: object) -> object:
    raise RuntimeError("this prompt or resource belongs to a class, not to an instance")


def bound_prompts(provider: object) -> list[Prompt]:
    """Return the `@prompt` methods of an instance, in the order of definition, base classes first."""
    owner = type(provider)
    return [_prompt(owner, item, getattr(provider, item.attribute)) for item in marked_methods(owner, PromptMark)]


def bound_resources(provider: object) -> list[Resource]:
    """Return the `@resource` methods of an instance, in the order of definition, base classes first."""
    owner = type(provider)
    return [_resource(owner, item, getattr(provider, item.attribute)) for item in marked_methods(owner, ResourceMark)]


def _place(owner: type, item: Marked[Any]) -> str:
    return f"{owner.__qualname__}.{item.attribute}"


def _prompt(owner: type, item: Marked[PromptMark], method: Callable[..., object]) -> Prompt:
    mark, place, signature = item.mark, _place(owner, item), item.mark.read(owner, item)
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


def _resource(owner: type, item: Marked[ResourceMark], method: Callable[..., object]) -> Resource:
    mark, place, signature = item.mark, _place(owner, item), item.mark.read(owner, item)
    declared = mark.declared
    properties = as_object(signature.parameters.get("properties"))
    if set(properties) != set(declared.variables):
        wanted = ", ".join(declared.variables) or "none"
        found = ", ".join(properties) or "none"
        raise InvalidDefinition(f"{place}: the parameters are {found}, the variables of {declared.uri!r} are {wanted}")
    values = {
        name: texts
        for name, schema in properties.items()
        if (texts := check_text_parameter(place, name, signature.parameters, schema))
    }
    return replace(
        declared,
        read=method_call(method, signature, is_async=item.method.is_async),
        name=declared.name or item.attribute,
        description=declared.description if mark.described else signature.summary,
        completions={**values, **declared.completions},
    )


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


def contents_of(value: object, uri: str, mime_type: str) -> dict[str, object]:
    """Return what a resource returned as MCP contents. Raises `TypeError` for a value that is not JSON."""
    if isinstance(value, str):
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": value}
    if isinstance(value, bytes | bytearray):
        blob = base64.b64encode(value).decode("ascii")
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}
    json = as_json(value)
    if json is None:
        raise TypeError(f"a resource returns text, bytes or a JSON value: {why_not_json(value)}")
    return {"uri": uri, "mimeType": mime_type or "application/json", "text": json.text}
