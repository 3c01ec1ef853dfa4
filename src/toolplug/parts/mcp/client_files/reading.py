"""Reads the MCP servers of other programs' files: editors, desktop clients and agents, in JSON, YAML and TOML.

Each program has its own place and words for the same few facts (`formats.py`); they become one `ClientServer`.
"""

from __future__ import annotations

import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, cast

import json5
import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from toolplug.catalog.exact_json import as_list, as_object
from toolplug.config.document import parse_document
from toolplug.config.nearest import nearest
from toolplug.config.units import own_text, right_shape
from toolplug.config.yaml_tree import Mark, problem_at, shown_path
from toolplug.errors import ConfigError, Problem
from toolplug.foreign.client_files import (
    BEARER_VARIABLE,
    ENV_VARIABLES,
    HEADER_VARIABLES,
    MAX_FILE_BYTES,
    SECTIONS,
    WORDS,
)

_OF_PROGRAM = frozenset({"builtin", "platform", "extension", "frontend", "inline_python"})
"""Kinds of servers that are part of the program itself."""


def _text_of_scalar(value: object) -> object:
    """Convert numbers and booleans to text, as those clients do for a process."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_Text = Annotated[str, BeforeValidator(_text_of_scalar)]


class ClientServer(BaseModel):
    """A server of such a file. Keys without a meaning here are ignored, and reported."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", strict=True, frozen=True)

    type: str | None = None
    command: Annotated[str | None, Field(min_length=1)] = None
    args: list[_Text] = []
    env: dict[str, _Text | None] = {}
    cwd: str | None = None
    url: Annotated[str | None, Field(pattern="^https?://")] = None
    headers: dict[str, _Text] = {}
    disabled: bool = False

    @property
    def ignored_keys(self) -> tuple[str, ...]:
        """The keys without a meaning here."""
        return tuple(self.model_extra or ())


class Reading(NamedTuple):
    """The valid servers by their names in the file, the names of those that only its program has, and the problems."""

    servers: Mapping[str, ClientServer]
    own: tuple[str, ...]
    problems: tuple[Problem, ...]


def read_client_file(file: Path) -> Reading:
    """Read the servers. Raises `OSError`, and `ConfigError` for a file that has none or cannot be read."""
    servers: dict[str, ClientServer] = {}
    own: list[str] = []
    problems: list[Problem] = []
    for path, name, value in _entries(file, parse_client_file(read_bytes(file), file)):
        entry = as_object(value)
        if _is_of_program(entry):
            own.append(name)
            continue
        try:
            server = ClientServer.model_validate(_in_our_words(entry) if isinstance(value, dict) else value)
        except ValidationError as error:
            problems.extend(_problems(error, str(file), path))
            continue
        if (server.command is None) == (server.url is None):
            both = "has both 'command' and 'url'; keep one" if server.url else "has neither 'command' nor 'url'"
            problems.append(_problem(str(file), path, both))
        else:
            servers[name] = server
    return Reading(servers, tuple(own), tuple(problems))


def read_bytes(file: Path) -> bytes:
    """Return the bytes of a file, its byte order mark included. Raises `OSError` and `ConfigError`."""
    with file.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        hint = "is it the file of settings?"
        raise ConfigError([Problem(code="too_large", message="larger than 1 MiB", file=str(file), hint=hint)])
    return data


def parse_client_file(data: bytes, file: Path) -> Mapping[str, object]:
    """Return the whole file as a mapping; its ending says how it is written. Raises `ConfigError`."""
    data = data.removeprefix(BOM_UTF8)
    if file.suffix in (".yaml", ".yml"):
        return parse_document(data, file=str(file)).value
    try:
        if file.suffix == ".toml":
            return tomllib.loads(data.decode())
        return as_object(_json(data, file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_not_toml(error, file)]) from None
    except UnicodeDecodeError as error:
        mark = Mark(line=data.count(b"\n", 0, error.start) + 1, column=1)
        raise ConfigError([problem_at(str(file), mark, "not_utf8", "not UTF-8 text", "save it as UTF-8")]) from None


def _not_toml(error: tomllib.TOMLDecodeError, file: Path) -> Problem:
    reason, _, place = str(error).partition(" (at line ")
    found = re.match(r"(\d+), column (\d+)", place)
    mark = Mark(line=int(found[1]), column=int(found[2])) if found else Mark(line=0, column=0)
    return problem_at(str(file), mark, "not_toml", f"not TOML: {reason}")


def _json(data: bytes, file: Path) -> object:
    """Return the value of JSON, also with comments and trailing commas, as editors have it."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        text = data.decode()
        try:
            # It takes JavaScript's words too; orjson's place is that of the fault where neither reads the text.
            return cast("object", json5.loads(text))
        except (ValueError, RecursionError):
            mark = Mark(line=error.lineno, column=error.colno)
            raise ConfigError([problem_at(str(file), mark, "not_json", f"not JSON: {error.msg}")]) from None


def _entries(file: Path, whole: Mapping[str, object]) -> Iterator[tuple[tuple[str | int, ...], str, object]]:
    """Yield path, name and value of each server. Raises `ConfigError` if there is no place of servers."""
    places = [*_server_lists(whole)]
    if not places:
        names = ", ".join(".".join(path) for path in SECTIONS)
        shape = f'it should read {{"mcpServers": {{"name": {{"command": …}}}}}}; servers are read from {names}'
        near = nearest("mcpServers", [key for key in whole if key != "mcpServers"])
        hint = shape if near is None else f"nearest: {near!r}"
        message = "the file has no mapping 'mcpServers'"
        raise ConfigError([Problem(code="no_servers", message=message, file=str(file), hint=hint)])
    for path, value in places:
        yield from _walk_named(path, value)


def _server_lists(whole: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the first place of servers that the file has, then that of each project (Claude Code)."""
    for path in SECTIONS:
        found: object = _below(whole, path)
        if isinstance(found, dict) or any(map(as_object, as_list(found))):
            yield path, found
            break
    for name, project in as_object(whole.get("projects")).items():
        if servers := as_object(project).get("mcpServers"):
            yield ("projects", name, "mcpServers"), servers


def _below(value: Mapping[str, object], path: tuple[str, ...]) -> object:
    found: object = value
    for key in path:
        found = as_object(found).get(key)
    return found


def _walk_named(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str | int, ...], str, object]]:
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            name = as_object(item).get("name")
            yield (*path, index), name if isinstance(name, str) else f"server-{index + 1}", item
    else:
        for name, item in as_object(value).items():
            yield (*path, name), name, item


def _is_of_program(entry: Mapping[str, object]) -> bool:
    """Return whether a server is built into its program, which alone can start it."""
    kind = entry.get("type") or entry.get("source")
    return kind in _OF_PROGRAM and not any(entry.get(key) for key in ("command", "cmd", "url", "uri"))


def _in_our_words(entry: Mapping[str, object]) -> Mapping[str, object]:
    """Return a server's entry in the words of `ClientServer`; what is null counts as absent."""
    found = {WORDS.get(key, key): item for key, item in entry.items() if item is not None}
    found.pop("name", None)
    if isinstance(found.get("transport"), str):  # Mistral Vibe, and what registries print
        found.setdefault("type", found.pop("transport"))
    if found.get("source") == "custom":  # Zed
        del found["source"]
    command = found.get("command")
    if isinstance(command, list) and command:  # opencode
        found["command"], *found["args"] = cast("list[object]", command)
    elif isinstance(command, dict):  # Zed, formerly
        found.update({"path": None, **as_object(cast("object", command))})
        found["command"] = found.pop("path")
    if isinstance(enabled := found.pop("enabled", None), bool):
        found["disabled"] = not enabled or found.get("disabled", False)
    _add_named_variables(found)
    return found


def _add_named_variables(found: dict[str, object]) -> None:
    """Add the environment and headers that an entry takes from variables by their names (Goose, Codex)."""
    names = found.pop("env_keys", None) or found.pop(ENV_VARIABLES, None)
    if isinstance(names, list):
        taken = {name: f"${{input:{name}}}" for name in cast("list[object]", names) if isinstance(name, str)}
        found["env"] = {**taken, **as_object(found.get("env"))}
    headers = {name: f"${{{of}}}" for name, of in as_object(found.pop(HEADER_VARIABLES, None)).items()}
    if isinstance(token := found.pop(BEARER_VARIABLE, None), str):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        found["headers"] = {**headers, **as_object(found.get("headers"))}


def _problems(error: ValidationError, file: str, path: tuple[str | int, ...]) -> Iterator[Problem]:
    for item in error.errors(include_url=False, include_input=False):
        shape = right_shape(item)
        yield _problem(file, (*path, *item["loc"]), own_text(item) if shape is None else f"should be {shape}")


def _problem(file: str, path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(code="invalid_server", message=message, file=file, path=shown_path(path))
