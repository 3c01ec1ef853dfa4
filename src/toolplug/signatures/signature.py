"""Signatures of functions: schema and conversion of the arguments, schema of the result, and the context parameter.

Docstrings: the summary of a function, and the descriptions of its parameters in Google, NumPy or reST style. Arguments
that are valid by their schema are converted to the types of the parameters.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, ForwardRef, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from toolplug.catalog.call import CallContext, Principal, ToolResult
from toolplug.catalog.schema_walk import pointer_part
from toolplug.config.masking import mask_secrets
from toolplug.config.units import own_text
from toolplug.errors import InvalidArguments, InvalidDefinition
from toolplug.signatures.annotations import (
    ClassFunction,
    Names,
    Unresolved,
    UnresolvedAnnotation,
    resolve_annotation,
    unread_signature,
)
from toolplug.signatures.described_arguments import (
    DescribedArguments,
    Parameters,
    TerseSchema,
    described_arguments,
    inline_models,
)
from toolplug.signatures.docstrings import read_docstring

Arguments = Mapping[str, object]
Convert = Callable[[Arguments], Arguments]

MAX_REPORTED = 20
MAX_MASKED = 1_000
"""If a refused value has more parts than this, the author's message is left out instead of searched for them."""


def whole_numbers(names: Sequence[str]) -> Convert:
    """Return a conversion that makes 1.0 an `int` for these parameters; other arguments stay the same object."""

    def convert(arguments: Arguments) -> Arguments:
        for name in names:
            if type(arguments.get(name)) is float:
                return {
                    key: int(value) if key in names and isinstance(value, float) else value
                    for key, value in arguments.items()
                }
        return arguments

    return convert


def through_model(model: type[BaseModel], parameters: Mapping[str, str], filled: Set[str]) -> Convert:
    """Return a conversion by the model; `parameters` maps its fields to the parameters of the method.

    An argument that was not given is left out, so that the method's default applies, except the `filled` parameters,
    whose default only the model knows. The conversion raises `InvalidArguments`.
    """

    def convert(arguments: Arguments) -> Arguments:
        try:
            made = model.model_validate(arguments)
        except ValidationError as error:
            raise InvalidArguments(tuple(_lines(error, arguments))) from None
        # `__dict__`, not `model_dump`: the method is to get the models themselves.
        values, given = made.__dict__, made.model_fields_set
        named = ((parameters[field], field in given, value) for field, value in values.items())
        return {name: value for name, was_given, value in named if was_given or name in filled}

    return convert


def _lines(error: ValidationError, arguments: Arguments) -> Iterator[str]:
    """Yield `/pointer: message` for each of the first 20 errors, without the values of the arguments."""
    for detail in error.errors(include_url=False)[:MAX_REPORTED]:
        # A message of the author's validator may quote the value, and errors must not repeat arguments.
        texts = list(islice(_texts(detail["input"]), MAX_MASKED + 1))
        message = mask_secrets(own_text(detail), texts) if len(texts) <= MAX_MASKED else "is refused"
        yield f"{_pointer(detail, arguments)}: {message}"


def _pointer(error: ErrorDetails, arguments: object) -> str:
    """Return the JSON pointer of an error; the types in pydantic's location are left out."""
    pointer, value = "", arguments
    for part in error["loc"]:
        # Pydantic's location also has the names of types and union members, which are at no place of the value.
        if isinstance(value, Mapping) and part in value:
            value = cast("Mapping[object, object]", value)[part]
        elif isinstance(value, list) and isinstance(part, int):
            value = cast("list[object]", value)[part]
        elif not (error["type"] == "missing" and part == error["loc"][-1]):
            continue
        pointer += pointer_part(part)
    return pointer or "/"


def _texts(value: object) -> Iterator[str]:
    """Yield every text and number in a value of any depth, as text."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str | int | float):
            yield str(node)
        elif isinstance(node, Mapping):
            pairs = cast("Mapping[object, object]", node)
            stack += [*pairs.keys(), *pairs.values()]
        elif isinstance(node, list | tuple):
            stack += cast("Sequence[object]", node)


_SCALARS: frozenset[object] = frozenset({str, bool, float, type(None), Any, object})
_CONTAINERS: frozenset[object] = frozenset({list, dict, Sequence, Mapping})
_UNION_ORIGINS: frozenset[object] = frozenset({Union, types.UnionType})
_CONSTRAINTS = (Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf)


def is_native(annotation: object) -> bool:
    """Return True if the parameter takes every value that the schema admits without conversion.

    `float` takes integers too. `int` is not native: to JSON Schema, 1.0 is an integer.
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_native(parts[0]) and all(map(_only_constrains, parts[1:]))
    if origin is Literal:
        return all(isinstance(part, str | bool | None) for part in parts)
    if origin in _UNION_ORIGINS or origin in _CONTAINERS:
        return all(map(is_native, parts))
    return annotation in _SCALARS or annotation in _CONTAINERS


def is_whole(annotation: object) -> bool:
    """Return True if every number that the schema admits is meant as an `int` and all other values are native."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_whole(parts[0]) and all(map(_only_constrains, parts[1:]))
    if origin in _UNION_ORIGINS:
        return int in parts and all(part in (int, str, type(None)) for part in parts)
    return annotation is int


def _only_constrains(metadata: object) -> bool:
    """Return True if the schema expresses this metadata of `Annotated` completely."""
    if isinstance(metadata, FieldInfo):
        named = metadata.alias is None and metadata.validation_alias is None
        given = metadata.default is not PydanticUndefined or metadata.default_factory is not None
        return named and not given and all(map(_only_constrains, metadata.metadata))
    return isinstance(metadata, _CONSTRAINTS)


_NO_KEYWORD = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; arguments are passed by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments; name each, or take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name; name each, or take a dict",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A function as a tool: `parameters` is a JSON Schema of type object, `output` that of the result, if it has one.

    `context` is the parameter for the `CallContext`; `convert` is None if arguments need no conversion.
    """

    summary: str
    parameters: Mapping[str, object]
    output: Mapping[str, object] | None
    context: str | None
    convert: Convert | None


def read_function(function: Callable[..., object], place: str, around: Names) -> Signature:
    """Read a function, or a method bound to its object, as `read_signature` does."""
    return read_signature(ClassFunction(function, bound=False), place, None, around)


def read_signature(method: ClassFunction, place: str, owner: type | None, around: Names) -> Signature:
    """Read a method of `owner`; `place` names it in errors, `around` are the names where its class is defined.

    Raises `InvalidDefinition` with place and parameter, or `UnresolvedAnnotation` for an annotation of a parameter that
    cannot be resolved; that of the result is then ignored.
    """
    function = method.function
    # Not unwrapped: a decorator of the author may make a coroutine function of a generator.
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidDefinition(
            f"{place} has a `yield`; return all of it, such as a list; context.report sends progress"
        )
    parameters = _named_parameters(method, place)
    meanings: dict[str, object] = {}
    for name, parameter in parameters.items():
        annotation = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
        try:
            meanings[name] = resolve_annotation(annotation, function, owner, around)
        except Unresolved as error:
            raise UnresolvedAnnotation(
                f"{place}: the annotation {_read_annotation(parameter)!r} of parameter {name!r} cannot be resolved"
                f" ({error}); import or define the name in the module, or where the class is made"
            ) from None
    contexts = [name for name, meaning in meanings.items() if _means(meaning, CallContext)]
    if len(contexts) > 1:
        raise InvalidDefinition(f"{place}: {' and '.join(contexts)} are both annotated CallContext; one is enough")
    own = {name: (meanings[name], item.default) for name, item in parameters.items() if name not in contexts}
    for name, (meaning, _) in own.items():
        if name in _CONTEXT_NAMES and parameters[name].annotation is inspect.Parameter.empty:
            raise InvalidDefinition(
                f"{place}: parameter {name!r} has no annotation: write `{name}: CallContext` for the context of the "
                "call, or the type of an argument that the model gives"
            )
        if _means(meaning, Principal):
            raise InvalidDefinition(
                f"{place}: the model would give {name!r}, and so choose who calls; take `context: CallContext` instead "
                "and read context.principal"
            )
    made = described_arguments(own, place)
    says = read_docstring(function)
    return Signature(
        summary=says.summary,
        parameters=made.schema(says.parameters),
        output=_output(function, owner, around),
        context=contexts[0] if contexts else None,
        convert=_convert(own, made),
    )


def _named_parameters(method: ClassFunction, place: str) -> dict[str, inspect.Parameter]:
    parameters = dict(unread_signature(method.function).parameters)
    if method.bound:
        first = next(iter(parameters.values()), None)
        # A first parameter without annotation may be a `self` of another name; one with an annotation was meant as an
        # argument.
        if first is None or (first.name not in ("self", "cls") and first.annotation is not first.empty):
            found = "" if first is None else f": its first parameter is {first.name!r}"
            raise InvalidDefinition(f"{place} takes no self{found}; write it as a method, or as a @staticmethod")
        del parameters[first.name]
    for name, parameter in parameters.items():
        if parameter.kind in _NO_KEYWORD:
            raise InvalidDefinition(f"{place}: parameter {name!r} {_NO_KEYWORD[parameter.kind]}")
    return parameters


def _read_annotation(parameter: inspect.Parameter) -> object:
    """Return the annotation as its author wrote it, even if Python kept it as a forward reference."""
    annotation: object = parameter.annotation
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


_CONTEXT_NAMES = frozenset({"context", "ctx"})


def _means(annotation: object, kind: type) -> bool:
    if get_origin(annotation) is Annotated:
        return _means(get_args(annotation)[0], kind)
    if get_origin(annotation) in _UNION_ORIGINS:
        return any(_means(part, kind) for part in get_args(annotation))
    return annotation is kind


def _convert(own: Parameters, made: DescribedArguments) -> Convert | None:
    """Return the cheapest conversion that the parameters need; None if they need none."""
    meanings = {name: meaning for name, (meaning, _) in own.items()}
    # `x: int = Field(3)`: Python's own default of the parameter would be the `FieldInfo`.
    foreign = {name for name, (_, default) in own.items() if isinstance(default, FieldInfo)}
    if foreign or not all(is_native(meaning) or is_whole(meaning) for meaning in meanings.values()):
        unset = {name for name, (_, default) in own.items() if default is inspect.Parameter.empty}
        return through_model(made.model, dict(zip(made.model.model_fields, own, strict=True)), foreign | unset)
    whole = [name for name, meaning in meanings.items() if is_whole(meaning)]
    return whole_numbers(whole) if whole else None


def _output(function: Callable[..., object], owner: type | None, around: Names) -> Mapping[str, object] | None:
    annotation = unread_signature(function).return_annotation
    try:
        meaning = resolve_annotation(annotation, function, owner, around)
    except Unresolved:
        return None
    try:
        if meaning in _WITHOUT_STRUCTURE or _holds_result(meaning):
            return None
        model = meaning if isinstance(meaning, type) and issubclass(meaning, BaseModel) else None
        aliased = model is not None and bool(model.model_config.get("serialize_by_alias"))
        adapter = TypeAdapter(cast("Any", meaning))  # an annotation may be anything
        schema = adapter.json_schema(schema_generator=TerseSchema, mode="serialization", by_alias=aliased)
    except Exception:  # noqa: BLE001  types are the author's code, which may raise anything
        return None
    # An empty schema allows everything, which tells a model nothing.
    return inline_models(schema) or None


_WITHOUT_STRUCTURE: Sequence[object] = (str, None, type(None), Any, object, inspect.Parameter.empty)
"""Annotations of results without structure: plain text, nothing, or any type."""


def _holds_result(annotation: object) -> bool:
    """Return True if the annotation includes `ToolResult`, which the tool then creates itself."""
    return annotation is ToolResult or any(map(_holds_result, get_args(annotation)))
