"""`@tool` and `@route`: methods of a provider become tools and HTTP routes.

Each marked method is read into a definition when its class is created; an annotation that cannot be resolved yet is
read again later, since it may name something below in the module. Instances bind the definitions to their methods.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast, overload

from pydantic import BaseModel

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.definition import Hosted, HostedItem, ToolDefinition, ToolHints, check_provider_tool_name
from toolplug.catalog.plan import CallRunner, Target
from toolplug.catalog.schema import Schema
from toolplug.config.units import parse_duration
from toolplug.errors import InvalidDefinition
from toolplug.providers.plugins.implementations import HOOKS, MARKS, marks_of
from toolplug.runtime.slips import suggest_options
from toolplug.signatures.annotations import ClassFunction, Names, UnresolvedAnnotation, class_function, unread_signature
from toolplug.signatures.described_arguments import schema_of_model
from toolplug.signatures.signature import Convert, Signature, read_signature

Method = TypeVar("Method", bound=Callable[..., object])
Mark = TypeVar("Mark")


class ToolOptions(NamedTuple):
    """The arguments of `@tool(…)`."""

    name: str | None
    title: str
    description: str | None
    hints: ToolHints
    hosted: Hosted | None
    timeout_s: float | None


class ToolMark:
    """The mark of `@tool`. `around` has the names at the class, until its annotations are resolved."""

    def __init__(self, options: ToolOptions) -> None:
        self.options = options
        # Names of a function's scope, for a class that is defined in a test or a factory; dropped once they were used.
        self.around: Names = {}
        self.read: tuple[ToolDefinition, Signature] | None = None


@dataclass(frozen=True, slots=True)
class RouteMark:
    """The mark of `@route`."""

    method: str
    path: str
    public: bool
    scope: str | None


class Marked(NamedTuple, Generic[Mark]):
    """One marked method of a class."""

    attribute: str
    method: ClassFunction
    mark: Mark


def with_mark(method: Method, mark: object, decorator: str) -> Method:
    """Return the method with this mark added. It may have several route marks, but one tool mark.

    A tool mark that came with `functools.wraps` is replaced, and one that was read: after a reload `tool(function)`
    is called again on a function of another module.
    """
    own = class_function(method)
    if own is None:
        raise InvalidDefinition(f"{decorator} decorates a method, not {method!r}")
    kept = marks_of(own.function)
    if isinstance(mark, ToolMark):
        wrapped = marks_of(getattr(own.function, "__wrapped__", None))
        unread = [other for other in kept if isinstance(other, ToolMark) and other.read is None]
        if any(other.options != mark.options and other not in wrapped for other in unread):
            raise InvalidDefinition(
                f"{own.function.__qualname__} has two @tool with different arguments{_line_of(own)}; keep one, and for "
                "a second name write another method that calls this one"
            )
        kept = tuple(other for other in kept if not isinstance(other, ToolMark))
    # On the function itself, so that the decorator returns what it was given, and type checkers see the method.
    setattr(own.function, MARKS, (*kept, mark))
    return method


def _line_of(method: ClassFunction) -> str:
    code = inspect.unwrap(method.function).__code__
    return f" at {code.co_filename}:{code.co_firstlineno}"


def marked_methods(owner: type, kind: type[Mark]) -> Iterator[Marked[Mark]]:
    """Return the methods with a mark of this kind, in the order of definition, base classes first.

    Only the final attribute of a name counts: an override without the decorator is not marked.
    """
    final: dict[str, object] = {}
    # The most derived class last, so that its attribute replaces that of a base, at the place of the base.
    for base in reversed(owner.__mro__):
        final.update(vars(base))
    for attribute, value in final.items():
        own = class_function(value)
        for mark in marks_of(own.function) if own is not None else ():
            if own is not None and isinstance(mark, kind):
                yield Marked(attribute, own, mark)


def is_tool(function: object) -> bool:
    """Return whether the function is decorated with `@tool`."""
    own = class_function(function)
    return own is not None and any(isinstance(mark, ToolMark) for mark in marks_of(own.function))


_TAKEN = frozenset({*HOOKS, "name", "key", "config", "log", "accepts_idempotency_key"})
_PARAMETER = re.compile(r"{[^}]*}")
_ITEM_TYPE = re.compile(r"[a-z][a-z0-9_]*_call|[a-z][a-z0-9_-]*:[a-z][a-z0-9_.-]*")

StubOptions = type[BaseModel] | Mapping[str, object]


@overload
def tool(function: Method, /) -> Method: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str = "",
    description: str | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    destructive: bool | None = None,
    sensitive: bool = False,
    stub: str | Sequence[str] = (),
    stub_options: StubOptions | None = None,
    item: HostedItem | None = None,
    timeout: float | str | None = None,
) -> Callable[[Method], Method]: ...
@suggest_options
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    title: str = "",
    description: str | None = None,
    read_only: bool | None = None,
    idempotent: bool | None = None,
    destructive: bool | None = None,
    sensitive: bool = False,
    stub: str | Sequence[str] = (),
    stub_options: StubOptions | None = None,
    item: HostedItem | None = None,
    timeout: float | str | None = None,
) -> object:
    """Make a method a tool. Use it bare, or with arguments that override its signature and docstring.

    `name`: replaces the method's name. `title`: the name that MCP clients show to people. `description`: replaces the
    docstring's text. `read_only`, `idempotent`, `destructive`: hints about its effects; the first two allow retries.
    `sensitive`: plugins such as the console and the journal never keep its arguments and results.
    `stub`: types of built-in tool stubs that expand to this tool; `stub_options`: the options that such a stub may
    have, as a pydantic model or a JSON Schema; none by default. `item`: how the Responses API shows its calls.
    `timeout`: seconds, or a text such as `5s`; the configuration overrides it.

    The method is `async def`, or a plain `def`, which runs in a thread. Its parameters become the JSON Schema; a
    parameter annotated `CallContext` receives the context. An override in a subclass must be decorated again. Raises
    `InvalidDefinition`, here or when the class is created.
    """
    options = ToolOptions(
        name=name,
        title=title,
        description=description,
        hints=ToolHints(read_only, idempotent, destructive, sensitive=sensitive),
        hosted=_make_hosted((stub,) if isinstance(stub, str) else tuple(stub), stub_options, item),
        timeout_s=_seconds(timeout),
    )

    def mark(method: Method) -> Method:
        return with_mark(method, ToolMark(options), "@tool")

    return mark if function is None else mark(function)


def route(method: str, path: str, *, public: bool = False, scope: str | None = None) -> Callable[[Method], Method]:
    """Make a method an HTTP route: `async def (self, request)`, returning a Starlette response or a JSON value.

    The host checks credentials and `scope` (by default `tools:call`) first; `request.state.tenant` is the caller's
    tenant. `public`: no credentials are needed, if the operator's `public_routes: true` agrees. `path` may have
    parameters, in Starlette's syntax. Raises `InvalidDefinition`, here or when the class is created.
    """
    if not (method.isascii() and method.isalpha()):
        raise InvalidDefinition(f"@route({method!r}, {path!r}): the first is the HTTP method, such as 'GET'")
    if not path.startswith("/"):
        raise InvalidDefinition(f"@route({method!r}, {path!r}): the path begins with /")
    try:
        # As Starlette will compile it at the start: the author sees the mistake at his line instead.
        library_types.compile_path(path)
    except (AssertionError, ValueError) as error:
        raise InvalidDefinition(f"@route({method!r}, {path!r}): {error}") from None
    mark = RouteMark(method.upper(), path, public, scope)
    return lambda function: with_mark(function, mark, "@route")


class BoundTool(NamedTuple):
    """A tool of one instance. `target` returns a coroutine, or blocks; `convert` is applied to its arguments before.

    `copies`: the arguments must be copied, since its code could change them. `runner` runs one that does not block.
    """

    definition: ToolDefinition
    target: Target
    blocking: bool
    wants_context: bool
    convert: Convert | None
    copies: bool = True
    runner: CallRunner | None = None


def bound_tools(provider: object) -> list[BoundTool]:
    """Return the `@tool` methods of an instance, in the order of definition, base classes first."""
    owner = type(provider)
    return [_bound(getattr(provider, item.attribute), *_read(owner, item)) for item in marked_methods(owner, ToolMark)]


def check_declared(owner: type) -> list[ToolDefinition]:
    """Return the definitions of the `@tool` methods of a class.

    Raises `InvalidDefinition`, with the method's line, for an annotation that cannot be resolved in the whole module.
    """
    definitions: list[ToolDefinition] = []
    for item in marked_methods(owner, ToolMark):
        try:
            definitions.append(_read(owner, item)[0])
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{error}{_line_of(item.method)}") from None
    return definitions


def selfless_tools(owner: type) -> Iterator[tuple[str, str]]:
    """Yield each `@tool` method, with its first parameter, if that is not `self`, `cls` or private."""
    for item in marked_methods(owner, ToolMark):
        first = next(iter(unread_signature(item.method.function).parameters), "self")
        if item.method.bound and first not in {"self", "cls"} and not first.startswith("_"):
            yield _name(item), first


def declared_routes(owner: type) -> list[tuple[str, str]]:
    """Return method and path of the `@route` methods of a class."""
    return [(item.mark.method, item.mark.path) for item in marked_methods(owner, RouteMark)]


def declared_scopes(owner: type) -> frozenset[str]:
    """Return the scopes that the `@route` methods of a class ask for by name."""
    return frozenset(item.mark.scope for item in marked_methods(owner, RouteMark) if item.mark.scope is not None)


def declare(owner: type, around: Names) -> None:
    """Read the marked methods of a class that was just created; `around`: the names at the class.

    Raises `InvalidDefinition`, but not for an annotation that cannot be resolved yet.
    """
    seen: dict[str, str] = {}
    for item in marked_methods(owner, ToolMark):
        if item.attribute in _TAKEN:
            raise InvalidDefinition(
                f"{owner.__qualname__}.{item.attribute}: every provider has a {item.attribute!r} of its own; "
                f"call the method something else and write @tool(name={item.attribute!r})"
            )
        item.mark.around = item.mark.around or around
        # An annotation may name a class further down in the module; `check_declared` reads it again.
        with suppress(UnresolvedAnnotation):
            _read(owner, item)
        check_once(owner, seen, item.attribute, f"the tool {_name(item)!r}")
    for attribute, method, mark in marked_methods(owner, RouteMark):
        if not (method.is_async and method.takes("request")):
            place = f"{owner.__qualname__}.{attribute}"
            raise InvalidDefinition(f"{place}: write the route as `async def {attribute}(self, request)`")
        check_once(owner, seen, attribute, f"the route {mark.method} {_PARAMETER.sub('{…}', mark.path)}")


def _name(item: Marked[ToolMark]) -> str:
    return item.attribute if item.mark.options.name is None else item.mark.options.name


def check_once(owner: type, seen: dict[str, str], attribute: str, what: str) -> None:
    """Raise `InvalidDefinition` if another attribute of the class is this too: `seen` has those that were looked at."""
    if seen.setdefault(what, attribute) != attribute:
        raise InvalidDefinition(f"{owner.__qualname__}: the methods {seen[what]!r} and {attribute!r} are both {what}")


def _read(owner: type, item: Marked[ToolMark]) -> tuple[ToolDefinition, Signature]:
    mark, options = item.mark, item.mark.options
    # Read once a class, not once an instance: pydantic builds a validator for each signature.
    if mark.read is None:
        place = f"{owner.__qualname__}.{item.attribute}"
        signature = read_signature(item.method, place, owner, mark.around)
        try:
            check_provider_tool_name(_name(item))
            definition = ToolDefinition(
                name=_name(item),
                description=signature.summary if options.description is None else options.description,
                parameters=signature.parameters,
                output_schema=signature.output,
                hints=options.hints,
                hosted=options.hosted,
                timeout_s=options.timeout_s,
                title=options.title,
            )
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{place}: {error}") from None
        mark.read, mark.around = (definition, signature), {}
    return mark.read


def _bound(method: Callable[..., object], definition: ToolDefinition, signature: Signature) -> BoundTool:
    return BoundTool(
        definition,
        _target(method, signature.context),
        # Unwrapped, as a decorator of the author may be a plain function around a coroutine function.
        blocking=not inspect.iscoroutinefunction(inspect.unwrap(method)),
        wants_context=signature.context is not None,
        convert=signature.convert,
    )


def _target(method: Callable[..., object], context_name: str | None) -> Target:
    """Return the shortest way to the method: an asynchronous one is called without another coroutine around it."""
    if context_name is None:

        def plain(call: ToolCall, context: CallContext, /) -> object:
            return method(**call.arguments)  # type: ignore[arg-type]

        return plain

    def call_with_context(call: ToolCall, context: CallContext, /) -> object:
        return method(**call.arguments, **{context_name: context})  # type: ignore[arg-type]

    return call_with_context


def _make_hosted(stubs: tuple[str, ...], options: StubOptions | None, item: HostedItem | None) -> Hosted | None:
    if item is not None and not _ITEM_TYPE.fullmatch(item.type):
        raise InvalidDefinition(f"@tool(item=…): {item.type!r} is no item type; write it as `slug:name`")
    if options is None:
        return Hosted(stubs, None, item) if stubs or item else None
    if not stubs:
        raise InvalidDefinition("@tool(stub_options=…) needs stub=, the type whose options they are")
    if not isinstance(cast("object", options), type | Mapping):
        raise InvalidDefinition(f"@tool(stub_options=…) is a pydantic model or a JSON Schema, not {options!r}")
    schema = dict(schema_of_model(options) if isinstance(options, type) else options)
    if "properties" in schema:
        # A misspelt option of a stub is an error, unless its author has said otherwise.
        schema.setdefault("additionalProperties", False)
    return Hosted(stubs, Schema(schema), item)


def _seconds(timeout: float | str | None) -> float | None:
    if timeout is None:
        return None
    try:
        seconds = parse_duration(timeout)
    except ValueError as error:
        raise InvalidDefinition(f"@tool(timeout={timeout!r}): {error}") from None
    if not seconds:
        raise InvalidDefinition(f"@tool(timeout={timeout!r}): no tool ends in no time")
    return seconds
