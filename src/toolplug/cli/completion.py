"""Completion of tool names and their arguments, from a cache of the catalog: it imports and starts no provider.

`toolplug tools` and `toolplug call` write the cache, a file for each configuration in the user's cache folder. Before
the first of them, and for a tenant or agent that they have not listed, there is nothing to complete.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import typer
from pydantic import BaseModel, ValidationError

from toolplug.catalog.catalog import Catalog
from toolplug.cli.options import found_config
from toolplug.host.private_file import replace_private

MAX_TOOLS = 2_000
"""Tools that the cache keeps of one catalog."""

MAX_CALLERS = 20
"""Tenants with agents whose catalogs a cache keeps, the last listed: each has up to 2,000 tools, and none expires."""


class _Parameter(BaseModel):
    """The part of a parameter's schema that names its values."""

    enum: list[object] = []
    type: object = None


class _CommandParameters(BaseModel):
    properties: dict[str, _Parameter | bool] = {}


class _Cache(BaseModel):
    """By tenant and agent, the tools, and of each the words `key=` or `key=value` of its parameters."""

    catalogs: dict[str, dict[str, list[str]]] = {}


def keep_for_completion(catalog: Catalog, config: Path | None, tenant: str, agent: str | None) -> None:
    """Write a catalog into the cache. What cannot be written is left out: the command goes on."""
    file = _file(config)
    if file is None:
        return
    cache = _read(file)
    tools = list(catalog.items())[:MAX_TOOLS]
    key = _caller_key(tenant, agent)
    cache.catalogs.pop(key, None)  # so that it is the newest
    cache.catalogs[key] = {name: _words(tool.definition.parameters.text) for name, tool in tools}
    for oldest in [*cache.catalogs][:-MAX_CALLERS]:
        del cache.catalogs[oldest]
    with suppress(OSError):
        replace_private(file, cache.model_dump_json())


def complete_tool(context: typer.Context, args: list[str], incomplete: str) -> list[str]:
    """Return the names of tools that begin with a text."""
    return [name for name in _read_known(context.params) if name.startswith(incomplete)]


def complete_argument(context: typer.Context, args: list[str], incomplete: str) -> list[str]:
    """Return the words of the named tool's parameters that begin with a text, without those that are given."""
    words = _read_known(context.params).get(str(context.params.get("name")), [])
    given = {word.partition("=")[0] for word in _texts(context.params.get("arguments"))}
    return [word for word in words if word.startswith(incomplete) and word.partition("=")[0] not in given]


def _texts(value: object) -> Iterable[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _read_known(params: Mapping[str, object]) -> dict[str, list[str]]:
    config, agent = params.get("config"), params.get("agent")
    file = _file(None if config is None else Path(str(config)))
    if file is None:
        return {}
    whose = _caller_key(str(params.get("tenant") or "default"), None if agent is None else str(agent))
    return _read(file).catalogs.get(whose, {})


def _words(schema: bytes) -> list[str]:
    """Return `key=` for each parameter, `key=value` for each value of one that has an enumeration or is a boolean."""
    try:
        shape = _CommandParameters.model_validate_json(schema)
    except ValidationError:
        return []
    words: list[str] = []
    for key, parameter in shape.properties.items():
        values = [] if isinstance(parameter, bool) else _values(parameter)
        words += [f"{key}={value}" for value in values] or [f"{key}="]
    return words


def _values(parameter: _Parameter) -> list[str]:
    if parameter.enum:
        return [item if isinstance(item, str) else json.dumps(item) for item in parameter.enum]
    return ["true", "false"] if parameter.type == "boolean" else []


def _caller_key(tenant: str, agent: str | None) -> str:
    return json.dumps([tenant, agent])


def _read(file: Path) -> _Cache:
    try:
        return _Cache.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return _Cache()


def _file(config: Path | None) -> Path | None:
    """Return the file of the cache for the configuration; None without a configuration."""
    found = found_config(config)
    if found is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # A hash, as a path has separators and may be longer than the name of a file can be.
    name = hashlib.sha256(os.fsencode(found.file.absolute())).hexdigest()[:32]
    return folder / "toolplug" / "completion" / f"{name}.json"
