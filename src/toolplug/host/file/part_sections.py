"""The sections that parts add to the file, and the parts that come with toolplug."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel, create_model

from toolplug.host.file.settings import HostSettings
from toolplug.providers.host_part import HostPart

_MODELS = 8
"""Models that are kept: a reload reads a file with the parts that it had before."""


def settings_model(parts: Sequence[HostPart[Any]]) -> type[HostSettings]:
    """Return the model of a file with the sections of these parts, of which each may be absent."""
    return _model(tuple((part.name, part.settings) for part in parts if part.settings is not None))


@lru_cache(_MODELS)
def _model(sections: tuple[tuple[str, type[BaseModel]], ...]) -> type[HostSettings]:
    fields: dict[str, Any] = {name: (settings | None, None) for name, settings in sections}
    return create_model(HostSettings.__name__, __base__=HostSettings, __doc__=HostSettings.__doc__, **fields)


BUILT_IN = ("toolplug.parts.responses.part", "toolplug.parts.mcp.part")
"""The modules of the parts of toolplug itself, each with its `PART`, in the order of their routes."""


@cache
def built_in() -> tuple[HostPart[Any], ...]:
    """Return the parts that come with toolplug, in the order of their routes, but for those that are not there."""
    there = [name for name in BUILT_IN if find_spec(name.rpartition(".")[0]) is not None]
    return tuple(import_module(name).PART for name in there)
