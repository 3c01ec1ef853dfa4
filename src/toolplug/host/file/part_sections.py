"""The sections that parts add to the file, and the parts that come with toolplug."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic import create_model

from toolplug.host.file.settings import HostSettings
from toolplug.providers.host_part import HostPart


@cache
def settings_model(parts: tuple[HostPart[Any], ...]) -> type[HostSettings]:
    """Return the model of a file with the sections of these parts, of which each may be absent."""
    sections: dict[str, Any] = {part.name: _field(part) for part in parts}
    return create_model(HostSettings.__name__, __base__=HostSettings, __doc__=HostSettings.__doc__, **sections)


def _field(part: HostPart[Any]) -> tuple[Any, Any]:
    """Return the type of the section and its value where the file has none."""
    return (part.settings | None, None) if part.default is None else (part.settings, part.default)


BUILT_IN = ("toolplug.parts.responses.part", "toolplug.parts.sessions.part")
"""The modules of the parts of toolplug itself, each with its `PART`, in the order of their routes."""


@cache
def built_in() -> tuple[HostPart[Any], ...]:
    """Return the parts that come with toolplug, in the order of their routes, but for those that are not there."""
    there = [name for name in BUILT_IN if find_spec(name.rpartition(".")[0]) is not None]
    return tuple(import_module(name).PART for name in there)
