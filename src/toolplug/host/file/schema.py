"""The JSON Schema of providers.yaml for editors, with the settings of the installed provider packages.

Every scalar may also be text with a `${NAME}`, and a secret may be in the file that `<key>_file` names. A host imports
nothing that its configuration does not name, so each type is asked in a child process: a package that hangs, exits or
uses up the memory costs only its own schema.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, cast

from pydantic import BaseModel, ValidationError

from toolplug.host.file.part_sections import built_in, settings_model
from toolplug.host.file.settings import PROVIDER_KEY, ProviderSettings
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.host.file.tool_servers import server_kind

CHILD_S = 10.0
# Each is a whole Python with the imports of its package.
AT_ONCE = 4


class SettingsSchema(BaseModel):
    """The settings of one type. A type that has no `model` and is not `open` takes no settings.

    `sections` are the schemas of what its parts add to the file.
    """

    model: dict[str, object] | None = None
    open: bool = False
    sections: dict[str, dict[str, object]] = {}
    error: str = ""


def settings_schemas(
    types: Iterable[str],
    asked: Callable[[], object] | None = None,
    *,
    within_s: float = CHILD_S,
    pythons: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, SettingsSchema]:
    """Return the settings of each type, from a child process each; failed ones are open, with the `error`.

    `asked` is called after each, in the order of the types. `pythons` are the interpreters that are asked in place of
    the host's, by type.
    """
    names, found = list(types), dict[str, SettingsSchema]()
    with ThreadPoolExecutor(AT_ONCE) as askers:
        ask = partial(_ask_package, pythons=pythons, within_s=within_s)
        for name, answer in zip(names, askers.map(ask, names), strict=True):
            found[name] = answer
            if asked is not None:
                asked()
    return found


def _ask_package(name: str, *, pythons: Mapping[str, str], within_s: float) -> SettingsSchema:
    # Another interpreter is to import from its own environment alone.
    command = [pythons[name], "-E", "-s", "-P"] if name in pythons else [sys.executable]
    try:
        return _ask([*command, "-m", "toolplug.host.file.settings_child", name], within_s)
    except OSError as error:
        return SettingsSchema(open=True, error=f"{command[0]} cannot be started: {error.strerror}")


def _ask(command: Sequence[str], within_s: float) -> SettingsSchema:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Makes the child the leader of a group, which `killpg` ends below.
        start_new_session=True,
    ) as child:
        try:
            answer, _ = child.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)  # with everything that it has started
            child.kill()
            return SettingsSchema(open=True, error=f"no answer within {within_s:g} s")
    try:
        found = SettingsSchema.model_validate_json(answer)
    except ValidationError:
        return SettingsSchema(open=True, error=f"no answer; the process ended with {child.returncode}")
    return found.model_copy(update={"open": True}) if found.error else found


Json: TypeAlias = dict[str, object]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REFERENCE: Json = {"$ref": "#/$defs/reference"}


def file_schema(types: Mapping[str, SettingsSchema]) -> Json:
    """Return the schema of a whole configuration that can name these types."""
    defs: Json = {"reference": {"type": "string", "pattern": r"\$\{", "description": "${NAME} or ${NAME:-default}"}}
    model = settings_model(built_in())
    host = _take_definitions(model.model_json_schema(), "host", defs)
    sections = _object(host, "properties")
    servers = _servers(defs)
    reserved = _take_definitions(ProviderSettings.model_json_schema(), "entry", defs)
    for name, found in types.items():
        defs[f"provider.{name}"] = _entry(name, found, reserved, defs)
    defs["typed_entry"] = _typed_entry(types)
    added = {
        name: _nullable(_take_definitions(section, f"section.{name}", defs))
        for found in types.values()
        for name, section in found.sections.items()
    }
    return {
        "$schema": DIALECT,
        "title": "toolplug: providers.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "providers": _providers(types),
            **servers,
            **{name: sections[name] for name in model.section_names()},
            **added,
        },
        "$defs": defs,
    }


def _servers(defs: Json) -> Json:
    """Return the section of servers by its name, and add the schema of an entry to `defs`; empty without a part."""
    kind = server_kind(built_in())
    if kind is None:
        return {}
    entry = kind.schema()
    own = _take_definitions(entry.model.model_json_schema(), entry.owner, defs)
    defs[entry.name] = {**own, "oneOf": [*entry.either]}
    section: Json = {
        "description": entry.description,
        "type": ["object", "null"],
        "propertyNames": {"pattern": entry.id_pattern},
        "additionalProperties": {"$ref": f"#/$defs/{entry.name}"},
    }
    return {SERVERS: section}


def _nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}], "default": None}


def _providers(types: Mapping[str, SettingsSchema]) -> Json:
    """Return the schema of `providers`: a key is a type, unless its entry has `type`."""
    return {
        "description": "One entry for each provider, in the order in which models see their tools.",
        "type": ["object", "null"],
        "propertyNames": {"pattern": PROVIDER_KEY},
        "properties": {
            name: {
                "if": {"required": ["type"]},
                "then": {"$ref": "#/$defs/typed_entry"},
                "else": {"$ref": f"#/$defs/provider.{name}"},
            }
            for name in types
        },
        "additionalProperties": {"$ref": "#/$defs/typed_entry", "required": ["type"]},
    }


def _typed_entry(types: Mapping[str, SettingsSchema]) -> Json:
    return {
        "type": "object",
        "properties": {"type": {"enum": list(types)}},
        "allOf": [
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": {"$ref": f"#/$defs/provider.{name}"},
            }
            for name in types
        ],
    }


def _entry(name: str, found: SettingsSchema, reserved: Json, defs: Json) -> Json:
    """Return the schema of an entry of one type: the host's keys, and its own, flat or under `settings`."""
    own = _take_definitions(found.model or {"type": "object", "properties": {}}, name, defs)
    own["additionalProperties"] = found.open
    host_keys = _object(reserved, "properties")
    flat = {key: value for key, value in _object(own, "properties").items() if key not in host_keys}
    entry: Json = {
        "type": "object",
        "properties": {**host_keys, "settings": own, **flat},
        "additionalProperties": found.open,
    }
    if found.error:
        entry["description"] = f"The settings of this type are not known: {found.error}"
    # Only where the keys are flat and the entry is enabled: a disabled one may be incomplete, and `settings` has them
    # below itself.
    needed = {key: own[key] for key in ("required", "allOf") if key in own}
    if needed:
        on: Json = {
            "properties": {"enabled": {"const": True}},
            "required": ["enabled"],
            "not": {"required": ["settings"]},
        }
        entry |= {"if": on, "then": needed}
    return entry


def _take_definitions(schema: Json, owner: str, defs: Json) -> Json:
    """Return the schema open to references, with its definitions moved to `defs` under the owner's name."""
    for name, inner in _object(schema, "$defs").items():
        defs[f"{owner}.{name}"] = _open(_move(inner, owner))
    moved = _move({key: value for key, value in schema.items() if key != "$defs"}, owner)
    return cast("Json", _open(moved))


def _move(value: object, owner: str) -> object:
    if isinstance(value, list):
        return [_move(item, owner) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("Json", value)
    moved = {key: _move(inner, owner) for key, inner in found.items()}
    target = found.get("$ref")
    if isinstance(target, str):
        moved["$ref"] = target.replace("#/$defs/", f"#/$defs/{owner}.", 1)
    return moved


def _open(value: object) -> object:
    """Return the schema in which every scalar may be a reference, and every secret the name of a file."""
    if not isinstance(value, dict):
        return value
    schema = cast("Json", value)
    opened = dict(schema)
    if "properties" in schema:
        opened["properties"] = {
            **{key: _open(inner) for key, inner in _object(schema, "properties").items()},
            **dict(_secret_files(schema)),
        }
        opened |= _either_required(schema)
    for key in ("items", "additionalProperties"):
        if key in schema:
            opened[key] = _open(schema[key])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            opened[key] = [_open(inner) for inner in cast("list[object]", schema[key])]
    return {"anyOf": [opened, _REFERENCE]} if _is_narrow_scalar(schema) else opened


def _is_narrow_scalar(schema: Json) -> bool:
    """Return whether the schema is that of a scalar that excludes text with a reference."""
    if "enum" in schema or "const" in schema or schema.get("type") in ("integer", "number", "boolean"):
        return True
    return schema.get("type") == "string" and any(key in schema for key in ("pattern", "format", "maxLength"))


def _secret_files(schema: Json) -> Iterator[tuple[str, object]]:
    known = _object(schema, "properties")
    for key, inner in known.items():
        if _is_secret(inner) and f"{key}_file" not in known:
            yield f"{key}_file", {"type": "string", "description": f"a file that holds {key}"}


def _either_required(schema: Json) -> Json:
    """Return the keywords that let the file of each required secret replace it."""
    known = _object(schema, "properties")
    required = [str(key) for key in cast("list[object]", schema.get("required", []))]
    secret = [key for key in required if _is_secret(known.get(key)) and f"{key}_file" not in known]
    if not secret:
        return {}
    return {
        "required": [key for key in required if key not in secret],
        "allOf": [{"anyOf": [{"required": [key]}, {"required": [f"{key}_file"]}]} for key in secret],
    }


def _is_secret(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    found = cast("Json", schema)
    members = cast("list[object]", found.get("anyOf", []))
    return (found.get("format") == "password" and found.get("writeOnly") is True) or any(map(_is_secret, members))


def _object(schema: Json, key: str) -> Json:
    return cast("Json", schema.get(key, {}))
