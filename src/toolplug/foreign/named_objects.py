"""Importing what a setting names: an object of an installed module, or of a file."""

from __future__ import annotations

import difflib
import re
import sys
import threading
from functools import reduce
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from toolplug.errors import InvalidDefinition

# The path of a file may have a colon of its own, on Windows.
_NAME = re.compile(r"(?P<place>.+?\.py|[^:]+)(?::(?P<attribute>[\w.]+))?")

_EXECUTING: dict[str, threading.RLock] = {}
"""A lock for each module of a file, which is held while it is executed."""


def import_object(name: str, folder: Path) -> object:
    """Return the object that `package.module:name` or `./file.py:name` names; without `:name` it is the module.

    folder: the base of the path of a file, such as `site.config_dir`

    It imports the module, which may take long: call it in a thread. A file runs once for each content and place.
    Raises `InvalidDefinition` with the fix if there is no such module or name, or the import raises.

    ```python
    from pathlib import Path

    from toolplug import import_object

    assert import_object("json:dumps", Path())([1]) == "[1]"
    ```
    """
    named = _NAME.fullmatch(name)
    place, attribute = (name, "") if named is None else (named["place"], named["attribute"] or "")
    module = _file_module(folder / place, place) if place.endswith(".py") else _installed_module(place)
    try:
        return reduce(getattr, (part for part in attribute.split(".") if part), module)
    except AttributeError:
        near = difflib.get_close_matches(attribute, [each for each in vars(module) if not each.startswith("_")], 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidDefinition(f"{place} has no {attribute!r}{meant}") from None


def _installed_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidDefinition(f"{name!r} is no module; write package.module:Name, or ./file.py:name")
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            fix = "correct the name, or install the package that has it into the environment of the host"
            raise InvalidDefinition(f"there is no module {error.name!r}; {fix}") from None
        # A part of a package that is there: the module was written for another version of it.
        missing, _, part = (error.name or "").partition(".")
        fix = f"install the version of {missing!r} that it needs" if part else f"install {error.name!r}, which it needs"
        raise InvalidDefinition(f"importing {name} raised ModuleNotFoundError: {error}; {fix}") from error
    # `SystemExit` too: a module that ends the process is a broken module, and others go on.
    except BaseException as error:
        raise _refuse_import(name, error, "update or remove its package") from error


def _file_module(path: Path, shown: str) -> ModuleType:
    try:
        # With the path: a file that is copied elsewhere finds what is next to it there.
        digest = sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidDefinition(f"{shown} cannot be read: {reason}; a relative path is below {path.parent}") from None
    name = f"toolplug_object_{path.stem}_{digest}"
    # As the import system has one for each module: providers start side by side, and one that found the module of
    # another half executed would miss what comes further down.
    with _EXECUTING.setdefault(name, threading.RLock()):
        if name in sys.modules:
            return sys.modules[name]
        spec = spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InvalidDefinition(f"{shown} is no file of Python")
        module = module_from_spec(spec)
        # Before it is executed, as the import system does it: dataclasses and pydantic look up their own module.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            missing = isinstance(error, ModuleNotFoundError) and error.name
            fix = f"install {missing!r}, which it needs, or fix the file" if missing else "fix the file"
            raise _refuse_import(shown, error, fix) from error
        return module


def _refuse_import(name: str, error: BaseException, fix: str) -> InvalidDefinition:
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return InvalidDefinition(f"importing {name} raised {said}; {fix}")
