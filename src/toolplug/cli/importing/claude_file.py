"""A desktop client's file of MCP servers: `{"mcpServers": {name: {command, args, env} or {url, headers}}}`."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from toolplug.config.key_path import shown_path
from toolplug.config.nearest import name_hint
from toolplug.config.wording import own_text, right_shape
from toolplug.errors import ConfigError, Problem

SERVERS = "mcpServers"


def _text_of_scalar(value: object) -> object:
    """Numbers and truth values as those clients hand them to a process."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_Text = Annotated[str, BeforeValidator(_text_of_scalar)]


class ClaudeServer(BaseModel):
    """One server of the file. What other programs keep beside these keys is ignored, and told."""

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
    def ignored(self) -> tuple[str, ...]:
        """The keys that mean nothing here."""
        return tuple(self.model_extra or ())


class Reading(NamedTuple):
    """The servers that can be had, by the file's own names, and what is wrong with the others."""

    servers: Mapping[str, ClaudeServer]
    problems: tuple[Problem, ...]


def read_claude_file(file: Path) -> Reading:
    """Read the file. Raises `ConfigError` where it is no such file, and `OSError`."""
    entries = _entries(file)
    servers: dict[str, ClaudeServer] = {}
    problems: list[Problem] = []
    for name, value in entries.items():
        try:
            server = ClaudeServer.model_validate(value)
        except ValidationError as error:
            problems.extend(_wrong(error, str(file), name))
            continue
        if (server.command is None) == (server.url is None):
            both = "has both 'command' and 'url'; keep one" if server.url else "has neither 'command' nor 'url'"
            problems.append(_problem(str(file), (name,), both))
        else:
            servers[name] = server
    return Reading(servers, tuple(problems))


def _entries(file: Path) -> Mapping[str, object]:
    try:
        whole = orjson.loads(file.read_bytes().removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        problem = Problem(
            code="not_json", message=f"not JSON: {error.msg}", file=str(file), line=error.lineno, column=error.colno
        )
        raise ConfigError([problem]) from None
    sections = cast("dict[str, object]", whole) if isinstance(whole, dict) else {}  # keys of JSON are text
    found = sections.get(SERVERS)
    if not isinstance(found, dict):
        message = f"the file has no mapping {SERVERS!r}"
        others = [key for key in sections if key != SERVERS]
        hint = name_hint(SERVERS, others) or f'it should read {{"{SERVERS}": {{"name": {{"command": …}}}}}}'
        raise ConfigError([Problem(code="no_servers", message=message, file=str(file), hint=hint)])
    return cast("dict[str, object]", found)  # as above


def _wrong(error: ValidationError, file: str, name: str) -> Iterator[Problem]:
    for item in error.errors(include_url=False, include_input=False):
        shape = right_shape(item)
        yield _problem(file, (name, *item["loc"]), own_text(item) if shape is None else f"should be {shape}")


def _problem(file: str, path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(code="invalid_server", message=message, file=file, path=shown_path((SERVERS, *path)))
