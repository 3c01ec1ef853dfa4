"""Secrets in files of their own: `<key>_file` in place of a secret field `<key>`."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel

from toolplug.config.document import Section
from toolplug.config.model_shape import Shapes, field_keys, is_secret, known_keys, models_in, shapes_at, shapes_of
from toolplug.config.yaml_tree import KeyPath, Value
from toolplug.errors import Problem

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
