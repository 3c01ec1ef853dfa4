"""Sections checked by pydantic models: secrets in files of their own, and errors as problems, in plain words.

A secret field `<key>` may be given as `<key>_file`. Problems have file, line and path, and never a secret. What a path
leads to in a model (an annotation, known keys, a secret) is looked up here, too.
"""

from __future__ import annotations

import collections.abc
import functools
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from toolplug.config.document import Section, has_reference
from toolplug.config.masking import holds_credentials, looks_secret, mask_secrets
from toolplug.config.nearest import name_hint
from toolplug.config.units import FileMapping, own_text, right_shape
from toolplug.config.yaml_tree import (
    MAX_PROBLEMS,
    KeyPath,
    ListNode,
    MappingNode,
    ScalarNode,
    Value,
    child_of,
    write_scalar,
)
from toolplug.errors import ConfigError, Problem

Shapes: TypeAlias = tuple[object, ...]
"""The possible annotations of a value: one, or the members of a union."""


def shapes_of(annotation: object) -> Shapes:
    """Return the annotation, or its members if it is a union; `Annotated`, root models and aliases are resolved."""
    return tuple(_members(annotation))


def shapes_at(shapes: Shapes, part: str | int) -> Shapes:
    """Return the possible annotations at a key or an index of a value; empty if they are unknown."""
    return tuple(member for shape in shapes for inner in _inner(shape, part) for member in _members(inner))


def models_in(shapes: Shapes) -> tuple[type[BaseModel], ...]:
    """Return the models among the shapes."""
    return tuple(shape for shape in shapes if isinstance(shape, type) and issubclass(shape, BaseModel))


def known_keys(models: Iterable[type[BaseModel]]) -> tuple[str, ...]:
    """Return every key of the models, aliases included, in the models' order."""
    fields = ((model, name, field) for model in models for name, field in model.model_fields.items())
    return tuple(dict.fromkeys(key for item in fields for key in field_keys(*item)))


def field_keys(model: type[BaseModel], name: str, field: FieldInfo) -> Iterator[str]:
    """Yield the keys of a field: its aliases, and its name if the model accepts that."""
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    for choice in choices:
        first = choice.path[0] if isinstance(choice, AliasPath) else choice
        if isinstance(first, str):
            yield first
    by_name = model.model_config.get("validate_by_name") or model.model_config.get("populate_by_name")
    if alias is None or by_name:
        yield name


def goes_by(model: type[BaseModel], tags: Collection[str]) -> bool:
    """Return whether pydantic identifies this member of a union by one of the tags: its name, or a literal in it."""
    literals = (get_args(shape) for field in model.model_fields.values() for shape in shapes_of(field.annotation))
    return model.__name__ in tags or any(literal in tags for values in literals for literal in values)


def is_secret(shapes: Shapes) -> bool:
    """Return whether one of the shapes is a secret type of pydantic."""
    return any(
        get_origin(shape) is Secret or (isinstance(shape, type) and issubclass(shape, SecretStr | SecretBytes | Secret))
        for shape in shapes
    )


def _members(annotation: object) -> Iterator[object]:
    # A `type` alias, or `TypeAliasType`: its value is evaluated when it is first read.
    named = getattr(annotation, "__value__", None)
    if named is not None:
        yield from _members(named)
    elif get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, UnionType}:
        for member in get_args(annotation):
            yield from _members(member)
    elif isinstance(annotation, type) and issubclass(annotation, RootModel):
        yield from _members(annotation.model_fields["root"].annotation)
    else:
        yield annotation


def _inner(shape: object, part: str | int) -> Iterator[object]:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        yield from (
            field.annotation
            for name, field in shape.model_fields.items()
            if part in tuple(field_keys(shape, name, field))
        )
        return
    origin, arguments = get_origin(shape), get_args(shape)
    if not isinstance(origin, type) or not arguments:
        return
    if issubclass(origin, collections.abc.Mapping):
        yield arguments[-1]
    elif issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        yield from arguments[part : part + 1] if isinstance(part, int) else ()
    elif issubclass(origin, collections.abc.Iterable):
        yield arguments[0]


MAX_SECRET_BYTES = 64 * 1024
_SUFFIX = "_file"


def read_secret_files(section: Section, model: type[BaseModel]) -> Section:
    """Return the section with each `<key>_file`, at any depth, replaced by `<key>` and the text of that file.

    Applies where the model has a secret field `<key>` and no field `<key>_file`. Relative paths refer to the folder of
    the configuration file. Line breaks at the end of a file are dropped. Errors are problems of the section.
    """
    reading = _Reading(section=section)
    value = reading.fill(section.value, section.path, shapes_of(model))
    return replace(
        section,
        value=value,
        problems=(*section.problems, *reading.problems),
        broken=section.broken | reading.broken,
        withheld=section.withheld | reading.withheld,
        moved={**section.moved, **reading.moved},
    )


class _Unusable(Exception):
    """The file holds no secret; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The replacement in one section, and its results."""

    section: Section
    problems: list[Problem] = field(default_factory=list[Problem])
    broken: set[KeyPath] = field(default_factory=set[KeyPath])
    withheld: set[str] = field(default_factory=set[str])
    moved: dict[KeyPath, KeyPath] = field(default_factory=dict[KeyPath, KeyPath])

    def fill(self, value: Value, path: KeyPath, shapes: Shapes) -> Value:
        if isinstance(value, list):
            return [self.fill(item, (*path, index), shapes_at(shapes, index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        file_keys = dict(_file_keys(shapes))
        filled: dict[str, Value] = {}
        for key, inner in value.items():
            if key not in file_keys:
                filled[key] = self.fill(inner, (*path, key), shapes_at(shapes, key))
            elif file_keys[key] in value:
                self._refuse((*path, key), f"both {file_keys[key]!r} and {key!r} are given", "keep one of them")
            else:
                secret_path = (*path, file_keys[key])
                self.moved[secret_path] = (*path, key)
                filled[file_keys[key]] = self._secret(inner, (*path, key), secret_path)
        return filled

    def _secret(self, name: Value, path: KeyPath, secret_path: KeyPath) -> Value:
        if path in self.section.broken:
            self.broken.add(secret_path)
            return None
        try:
            text = _read(name, Path(self.section.document.file).parent)
        except _Unusable as error:
            self.broken.add(secret_path)
            self._refuse(path, str(error), "")
            return None
        self.withheld.add(text)
        return text

    def _refuse(self, path: KeyPath, message: str, hint: str) -> None:
        self.problems.append(self.section.problem(path, code="secret_file", message=message, hint=hint))


def _file_keys(shapes: Shapes) -> Iterator[tuple[str, str]]:
    """Yield each key that names a file, with the key of its secret."""
    models = models_in(shapes)
    taken = known_keys(models)
    for model in models:
        for name, model_field in model.model_fields.items():
            if is_secret(shapes_of(model_field.annotation)):
                for key in field_keys(model, name, model_field):
                    if key + _SUFFIX not in taken:
                        yield key + _SUFFIX, key


def _read(name: Value, folder: Path) -> str:
    if not isinstance(name, str) or not name:
        raise _Unusable("should be the path of a file")
    path = folder / name
    try:
        # A pipe or a device would block the start for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _Unusable("is not a regular file")
        with path.open("rb") as stream:
            # One byte more than allowed tells a file that is too large without reading all of it.
            data = stream.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise _Unusable(f"the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise _Unusable("should be the path of a file") from None
    if len(data) > MAX_SECRET_BYTES:
        raise _Unusable("the file is larger than 64 KiB")
    try:
        # Editors and `echo` end a file with a line break, which no key has.
        text = data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise _Unusable("the file is not UTF-8 text") from None
    if not text:
        raise _Unusable("the file is empty")
    return text


NOTHING: Mapping[str, Shapes] = MappingProxyType({})
_QUOTED = re.compile(r"'([^']*)'")
_MAX_SHOWN_CHARACTERS = 60
_OF_ONE_KEY = frozenset(("extra_forbidden", "missing"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """An error of pydantic: the path of its value from the section, and the names of the union members on that path.

    `tagged`: the value itself is the union's, so other members may have errors about it too.
    """

    path: KeyPath
    tags: frozenset[str]
    tagged: bool
    error: ErrorDetails


def problems_of(
    error: ValidationError, *, section: Section, model: type[BaseModel], also_known: Mapping[str, Shapes] = NOTHING
) -> list[Problem]:
    """Return the problems that `model` has with the section's value, in file order, at most `MAX_PROBLEMS`.

    `also_known`: further keys at the top of the section, to suggest for unknown ones, with their shapes. Errors about
    `section.broken` are left out, since `section.problems` has their causes.
    """
    report = _Report(section=section, model=model, also_known=also_known)
    return sorted(
        # A set: members of a union report the same unknown key once each.
        set(islice(report.problems(error), MAX_PROBLEMS)),
        key=lambda problem: (problem.line, problem.column, problem.message),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    section: Section
    model: type[BaseModel]
    also_known: Mapping[str, Shapes]

    def problems(self, error: ValidationError) -> Iterator[Problem]:
        """Yield a problem for each unknown key, missing key and wrong value; one for all members of a union."""
        faults = [_locate(details, self.section.value) for details in error.errors(include_url=False)]
        # Every path above an error: a union that fits but for one value inside must not be called wrong as a whole.
        deeper = {fault.path[:length] for fault in faults for length in range(len(fault.path))}
        shapes: dict[KeyPath, list[str]] = {}
        for fault in faults:
            if self._is_noise(fault, deeper):
                continue
            shape = right_shape(fault.error, self._find_written(fault.path))
            if fault.error["type"] == "extra_forbidden":
                yield self._unknown_key(fault)
            elif fault.error["type"] == "missing":
                yield self.section.problem(
                    self._whole(fault.path), code="missing_key", message=f"the key {str(fault.path[-1])!r} is missing"
                )
            elif shape is not None:
                shapes.setdefault(fault.path, []).append(shape)
            else:
                yield self._in_own_words(fault)
        for path, expected in shapes.items():
            yield self._wrong_value(path, list(dict.fromkeys(expected)))

    def _is_noise(self, fault: _Fault, deeper: Set[KeyPath]) -> bool:
        """Return whether the error only follows from a missing value, or another member of the union fits better.

        Without one of its values a collection may be too short, or wrong as a whole.
        """
        if self._whole(fault.path) in self.section.broken or (fault.tagged and fault.path in deeper):
            return True
        if fault.error["type"] == "too_short":
            return fault.path in deeper
        of_the_whole = fault.error["type"] not in _OF_ONE_KEY and right_shape(fault.error) is None
        return of_the_whole and self._whole(fault.path) in {path[:-1] for path in self.section.broken}

    def _whole(self, path: KeyPath) -> KeyPath:
        return (*self.section.path, *path)

    def _value(self, path: KeyPath) -> Value:
        return functools.reduce(child_of, path, self.section.value)

    def _find_written(self, path: KeyPath) -> Value:
        try:
            return self._value(path)
        except LookupError:
            return None

    def _shapes_at(self, path: KeyPath) -> Shapes:
        return functools.reduce(shapes_at, path, shapes_of(self.model))

    def _unknown_key(self, fault: _Fault) -> Problem:
        *parent, key = fault.path
        shapes = self._shapes_at(tuple(parent))
        models = models_in(shapes)
        models = tuple(model for model in models if goes_by(model, fault.tags)) or models
        known = {name: shapes_at(shapes, name) for name in known_keys(models)}
        if not parent:
            known |= self.also_known
        places = (model.elsewhere.get(str(key)) for model in models if issubclass(model, FileMapping))
        return self.section.problem(
            self._whole(fault.path),
            code="unknown_key",
            message=f"unknown key {str(key)!r}",
            hint=next(filter(None, places), "") or key_hint(str(key), known),
            at_key=True,
        )

    def _wrong_value(self, path: KeyPath, expected: list[str]) -> Problem:
        message = f"should be {' or '.join(expected)}"
        found = self._show(path)
        return self.section.problem(
            self._whole(path),
            code="wrong_value",
            message=f"{message}, not {found}" if found else message,
            hint=self._value_hint(path, expected),
        )

    def _value_hint(self, path: KeyPath, expected: list[str]) -> str:
        value = self._value(path)
        if "text" in expected and isinstance(value, int | float):
            return "write it in quotes"
        choices = [choice for phrase in expected if phrase.startswith("'") for choice in _QUOTED.findall(phrase)]
        if choices and isinstance(value, str) and self._show(path):
            hint = name_hint(value, choices)
            return hint if hint.startswith("nearest") else ""
        return ""

    def _in_own_words(self, fault: _Fault) -> Problem:
        value, named = self._value(fault.path), fault.error.get("ctx", {}).get("key")
        scalar = not isinstance(value, dict | list)
        if scalar and not self._show(fault.path):
            message = "is not valid (the value is not shown)"
        else:
            message = mask_secrets(own_text(fault.error), secrets_of(self.section, self.model)) or "is not valid"
        at_key = isinstance(value, dict) and named in value
        path = (*fault.path, str(named)) if at_key else fault.path
        return self.section.problem(self._whole(path), code="wrong_value", message=message, at_key=at_key)

    def _show(self, path: KeyPath) -> str:
        """Return the value as the file has it, the kind of a collection, or an empty text for a secret."""
        try:
            node = self.section.document.node(self._whole(path))
        except KeyError:
            return ""
        match node:
            case ListNode(items=items):
                return "a list" if items else "an empty list"
            case MappingNode():
                return "a mapping"
            case ScalarNode(value=value):
                kept = isinstance(value, str) and (has_reference(value) or holds_credentials(value))
                if kept or looks_secret(self._whole(path)) or is_secret(self._shapes_at(path)):
                    return ""
                shown = write_scalar(value)
                return shown if len(shown) <= _MAX_SHOWN_CHARACTERS else f"{shown[: _MAX_SHOWN_CHARACTERS - 1]}…"


def secrets_of(section: Section, model: type[BaseModel]) -> frozenset[str]:
    """Return the texts that no message may show: those withheld, those of secret fields, and those that look secret."""
    return section.withheld.union(_secret_texts(section.value, section.path, shapes_of(model)))


def _locate(error: ErrorDetails, value: Value) -> _Fault:
    """Separate the keys and indices in an error's location from the names of union members and validators."""
    path: list[str | int] = []
    tags: set[str] = set()
    tagged = False
    last = len(error["loc"]) - 1
    for index, part in enumerate(error["loc"]):
        try:
            value = child_of(value, part)
        except LookupError:
            if index < last or error["type"] != "missing":
                tags.add(str(part))
                tagged = True
                continue
        path.append(part)
        tagged = False
    return _Fault(path=tuple(path), tags=frozenset(tags), tagged=tagged, error=error)


def _secret_texts(value: Value, path: KeyPath, shapes: Shapes) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secret_texts(inner, (*path, key), shapes_at(shapes, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _secret_texts(inner, (*path, index), shapes_at(shapes, index))
    elif isinstance(value, str) and (looks_secret(path) or holds_credentials(value) or is_secret(shapes)):
        yield value


def without_faults(value: Value, error: ValidationError, *, by_entry: Collection[str] = ()) -> dict[str, Value]:
    """Return the mapping without its invalid keys; of the keys in `by_entry` only their invalid entries are dropped."""
    kept: dict[str, Value] = {}
    for key, part in value.items() if isinstance(value, dict) else ():
        kept[key] = dict(part) if isinstance(part, dict) else part
    for fault in error.errors(include_url=False):
        name, *below = map(str, fault["loc"])
        part = kept.get(name)
        if name in by_entry and isinstance(part, dict) and below:
            part.pop(below[0], None)
        else:
            kept.pop(name, None)
    return kept


_Model = TypeVar("_Model", bound=BaseModel)


def key_hint(name: str, known: Mapping[str, Shapes]) -> str:
    """Return a hint for an unknown key: the one known key below which it belongs, else the nearest known keys."""
    above = [key for key, shapes in known.items() if name in known_keys(models_in(shapes))]
    if not above:
        # Of a mapping by name, such as `tools`, it belongs below each name.
        entries = {f"{key}.NAME": shapes_at(shapes, "NAME") for key, shapes in known.items()}
        above = [key for key, shapes in entries.items() if name in known_keys(models_in(shapes))]
    return f"it belongs under {above[0]!r}" if len(above) == 1 else name_hint(name, known)


def validate_section(section: Section, model: type[_Model], also_known: Mapping[str, Shapes] = NOTHING) -> _Model:
    """Validate the section. Raises `ConfigError` with the problems of the section and those that the model has.

    Unknown keys are refused unless the model sets `extra`. `also_known`: as for `problems_of`.
    """
    try:
        valid = model.model_validate(
            section.value,
            extra=None if "extra" in model.model_config else "forbid",
            # For validators of a provider that read files: relative paths are below the configuration.
            context={"config_dir": section.document.folder},
        )
    except ValidationError as error:
        found = problems_of(error, section=section, model=model, also_known=also_known)
        raise ConfigError([*section.problems, *found]) from None
    if section.problems:
        raise ConfigError(section.problems)
    return valid
