"""What a signature says: the schema of the arguments, how they are converted, which parameter gets the context."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ForwardRef, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from toolplug.catalog.call import CallContext
from toolplug.errors import InvalidDefinition
from toolplug.signatures.class_function import ClassFunction
from toolplug.signatures.conversion import Convert, through_model, whole_numbers
from toolplug.signatures.described_arguments import NO_SCHEMA, DescribedArguments, Parameters, described_arguments
from toolplug.signatures.docstrings import described
from toolplug.signatures.native import is_native, is_whole
from toolplug.signatures.scope import Names, Unresolved, UnresolvedAnnotation, resolved
from toolplug.signatures.terse_schema import TerseSchema
from toolplug.signatures.unread import unread_signature

_UNIONS = (Union, types.UnionType)
_NO_KEYWORD = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; arguments are passed by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments; name each, or take a list",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name; name each, or take a dict",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """`parameters` is a JSON Schema of type object; `output` one where the function returns an object, else None.

    `context` is the parameter that takes the `CallContext`; `convert` is None where arguments are passed as they come.
    """

    summary: str
    parameters: Mapping[str, object]
    output: Mapping[str, object] | None
    context: str | None
    convert: Convert | None


def read_function(function: Callable[..., object], place: str, around: Names) -> Signature:
    """Read a function, or a method bound to its object; everything else is as `read_signature` says."""
    return read_signature(ClassFunction(function, bound=False), place, None, around)


def read_signature(method: ClassFunction, place: str, owner: type | None, around: Names) -> Signature:
    """Read a method of `owner`, which errors call `place`; `around`: the names where its class is made.

    Raises `InvalidDefinition` naming place and parameter; `UnresolvedAnnotation` where an annotation of a parameter
    means nothing. One of the result that means nothing says nothing.
    """
    function = method.function
    parameters = _parameters(method, place)
    meanings: dict[str, object] = {}
    for name, parameter in parameters.items():
        try:
            meanings[name] = resolved(_annotation(parameter), function, owner, around)
        except Unresolved as error:
            raise UnresolvedAnnotation(
                f"{place}: the annotation {_written(parameter)!r} of parameter {name!r} cannot be resolved ({error}); "
                "import or define the name in the module, or where the class is made"
            ) from None
    contexts = [name for name, meaning in meanings.items() if _is_context(meaning)]
    if len(contexts) > 1:
        raise InvalidDefinition(f"{place}: {' and '.join(contexts)} are both annotated CallContext; one is enough")
    own = {name: (meanings[name], item.default) for name, item in parameters.items() if name not in contexts}
    made = described_arguments(own, place)
    says = described(function)
    return Signature(
        summary=says.summary,
        parameters=made.schema(says.parameters),
        output=_output(function, owner, around),
        context=contexts[0] if contexts else None,
        convert=_convert(own, made),
    )


def _parameters(method: ClassFunction, place: str) -> dict[str, inspect.Parameter]:
    parameters = dict(unread_signature(method.function).parameters)
    if method.bound:
        if not parameters:
            raise InvalidDefinition(f"{place} takes no self; write it as a method, or as a @staticmethod")
        del parameters[next(iter(parameters))]
    for name, parameter in parameters.items():
        if parameter.kind in _NO_KEYWORD:
            raise InvalidDefinition(f"{place}: parameter {name!r} {_NO_KEYWORD[parameter.kind]}")
    return parameters


def _annotation(parameter: inspect.Parameter) -> object:
    return Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation


def _written(parameter: inspect.Parameter) -> object:
    """The annotation as its author wrote it, also where Python did not keep it as text."""
    annotation: object = parameter.annotation
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


def _is_context(meaning: object) -> bool:
    if get_origin(meaning) is Annotated:
        return _is_context(get_args(meaning)[0])
    if get_origin(meaning) in _UNIONS:
        return any(map(_is_context, get_args(meaning)))
    return meaning is CallContext


def _convert(own: Parameters, made: DescribedArguments) -> Convert | None:
    """None where nothing needs to be converted, and little where only numbers are to be whole."""
    meanings = {name: meaning for name, (meaning, _) in own.items()}
    foreign = {name for name, (_, default) in own.items() if isinstance(default, FieldInfo)}
    if foreign or not all(is_native(meaning) or is_whole(meaning) for meaning in meanings.values()):
        unset = {name for name, (_, default) in own.items() if default is inspect.Parameter.empty}
        return through_model(made.model, dict(zip(made.model.model_fields, own, strict=True)), foreign | unset)
    whole = [name for name, meaning in meanings.items() if is_whole(meaning)]
    return whole_numbers(whole) if whole else None


def _output(function: Callable[..., object], owner: type | None, around: Names) -> Mapping[str, object] | None:
    annotation = unread_signature(function).return_annotation
    try:
        meaning = resolved(annotation, function, owner, around)
    except Unresolved:
        return None
    if not isinstance(meaning, type):
        return None
    kind = cast("type[object]", meaning)
    aliased = issubclass(kind, BaseModel) and bool(kind.model_config.get("serialize_by_alias"))
    try:
        schema = TypeAdapter(kind).json_schema(schema_generator=TerseSchema, mode="serialization", by_alias=aliased)
    except NO_SCHEMA:
        return None
    return schema if "properties" in schema else None
