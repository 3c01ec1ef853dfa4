"""`@resource`: methods of a provider become resources, or resource templates, of the Model Context Protocol."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from toolplug.catalog.exact_json import as_object
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import Marked, marked_methods, with_mark
from toolplug.providers.offering.definitions import NO_COMPLETIONS, Completion, Resource
from toolplug.providers.offering.prompts import check_text_parameter, method_call
from toolplug.signatures.annotations import Names, UnresolvedAnnotation
from toolplug.signatures.signature import Signature, read_signature
from toolplug.signatures.values import as_json, why_not_json

Method = TypeVar("Method", bound=Callable[..., object])


class ResourceMark:
    """The mark of `@resource`: its arguments as a resource that cannot be read yet."""

    def __init__(self, declared: Resource, described: bool) -> None:
        self.declared = declared
        self.described = described
        self.around: Names = {}
        self.read: Signature | None = None


def _unbound(*_: object) -> object:
    raise RuntimeError("this resource belongs to a class, not to an instance")


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


def declare_resources(owner: type, around: Names) -> None:
    """Read the `@resource` methods of a class that was just created, as `declare_prompts` does."""
    seen: dict[str, str] = {}
    for item in marked_methods(owner, ResourceMark):
        item.mark.around = item.mark.around or around
        with suppress(UnresolvedAnnotation):
            _definition(owner, item, _unbound)
        uri = item.mark.declared.uri
        if seen.setdefault(uri, item.attribute) != item.attribute:
            raise InvalidDefinition(
                f"{owner.__qualname__}: the methods {seen[uri]!r} and {item.attribute!r} are both the resource {uri!r}"
            )


def bound_resources(provider: object) -> Iterator[Resource]:
    """Yield the `@resource` methods of an instance, in the order of definition, base classes first."""
    owner = type(provider)
    for item in marked_methods(owner, ResourceMark):
        yield _definition(owner, item, getattr(provider, item.attribute))


def _definition(owner: type, item: Marked[ResourceMark], method: Callable[..., object]) -> Resource:
    mark, place = item.mark, f"{owner.__qualname__}.{item.attribute}"
    if mark.read is None:
        mark.read = read_signature(item.method, place, owner, mark.around)
        mark.around = {}
    signature, declared = mark.read, mark.declared
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
    return Resource(
        uri=declared.uri,
        read=method_call(method, signature, is_async=item.method.is_async),
        name=declared.name or item.attribute,
        title=declared.title,
        description=declared.description if mark.described else signature.summary,
        mime_type=declared.mime_type,
        size=declared.size,
        completions={**values, **declared.completions},
    )


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
