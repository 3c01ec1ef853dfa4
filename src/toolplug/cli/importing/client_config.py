"""Reads a desktop client's file of MCP servers: `{"mcpServers": {name: {command, args, env} or {url, headers}}}`."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, cast
from urllib.parse import unquote

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from toolplug.config.masking import looks_secret, named_arguments, password_in
from toolplug.config.nearest import name_hint
from toolplug.config.wording import own_text, right_shape
from toolplug.config.yaml_tree import Mark, Value, problem_at, shown_path
from toolplug.errors import ConfigError, Problem

SERVERS = "mcpServers"
MAX_ID = 64

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_FOREIGN = re.compile(r"\$\{(?P<kind>env|input):(?P<name>[^}]+)\}")
"""An environment variable, or a value that the editor asks for, in the syntax of editors."""
_SCHEME = re.compile(r"(?P<scheme>Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)
_KEY = re.compile(r"(?:sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.-]{8}.*")
"""API keys of well-known services, by their prefixes."""


def _text_of_scalar(value: object) -> object:
    """Convert numbers and booleans to text, as those clients do for a process."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_Text = Annotated[str, BeforeValidator(_text_of_scalar)]


class ClaudeServer(BaseModel):
    """A server of the file. Keys without a meaning here are ignored, and reported."""

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
        """The keys without a meaning here."""
        return tuple(self.model_extra or ())


class Reading(NamedTuple):
    """The valid servers by their names in the file, and the problems of the others."""

    servers: Mapping[str, ClaudeServer]
    problems: tuple[Problem, ...]


def read_claude_file(file: Path) -> Reading:
    """Read the servers. Raises `OSError`, and `ConfigError` for a file without a mapping of servers."""
    servers: dict[str, ClaudeServer] = {}
    problems: list[Problem] = []
    for name, value in _entries(file).items():
        try:
            server = ClaudeServer.model_validate(value)
        except ValidationError as error:
            problems.extend(_problems(error, str(file), name))
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
        mark = Mark(line=error.lineno, column=error.colno)
        raise ConfigError([problem_at(str(file), mark, "not_json", f"not JSON: {error.msg}")]) from None
    sections = cast("dict[str, object]", whole) if isinstance(whole, dict) else {}  # keys of JSON are text
    found = sections.get(SERVERS)
    if not isinstance(found, dict):
        message = f"the file has no mapping {SERVERS!r}"
        others = [key for key in sections if key != SERVERS]
        hint = name_hint(SERVERS, others) or f'it should read {{"{SERVERS}": {{"name": {{"command": …}}}}}}'
        raise ConfigError([Problem(code="no_servers", message=message, file=str(file), hint=hint)])
    return cast("dict[str, object]", found)  # as above


def _problems(error: ValidationError, file: str, name: str) -> Iterator[Problem]:
    for item in error.errors(include_url=False, include_input=False):
        shape = right_shape(item)
        yield _problem(file, (name, *item["loc"]), own_text(item) if shape is None else f"should be {shape}")


def _problem(file: str, path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(code="invalid_server", message=message, file=file, path=shown_path((SERVERS, *path)))


def legal_ids(names: Iterable[str]) -> Mapping[str, str]:
    """Return a unique id for each name: the name itself if it is a valid id."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        unique = wanted = _legal_id(name)
        number = 1
        while unique in taken:
            number += 1
            unique = f"{wanted[: MAX_ID - len(str(number)) - 1]}-{number}"
        taken.add(unique)
        found[name] = unique
    return found


def _legal_id(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
    if not plain:
        return "server"
    return (plain if plain[0].isalpha() else f"server-{plain}")[:MAX_ID]


def server_entry(server: ClaudeServer, name: str, variables: Variables) -> Mapping[str, Value]:
    """Return the entry for the configuration under this id, with references to `variables` in place of secrets."""
    entry: dict[str, Value] = {}
    if server.command is not None:
        entry["command"] = variables.referring(name, "command", "", server.command)
        entry["args"] = [*_arguments(server.args, name, variables)]
        entry["env"] = _named(server.env, name, "env", variables)
        entry["cwd"] = server.cwd
    elif server.url is not None:
        entry["url"] = _url(server.url, name, variables)
        entry["headers"] = _named(server.headers, name, "header", variables)
    if server.disabled:
        entry["enabled"] = False
    return {key: value for key, value in entry.items() if value is not None and value not in ([], {})}


def remarks(server: ClaudeServer) -> Iterator[str]:
    """Yield notes for the user on what the entry leaves out."""
    if server.ignored:
        yield f"left out: {', '.join(server.ignored)}"
    if server.type == "sse":
        yield "its transport is the former one, sse; Streamable HTTP is spoken here, which is often at another path"


def _named(values: Mapping[str, str | None], server: str, kind: str, variables: Variables) -> dict[str, Value]:
    return {key: variables.referring(server, kind, key, value) for key, value in values.items() if value is not None}


def _arguments(args: Sequence[str], server: str, variables: Variables) -> Iterator[str]:
    for argument in named_arguments(args):
        value = _address(argument.value, server, variables, kind="argument", name=argument.name)
        yield f"{variables.plain(argument.before)}{value}"


def _url(url: str, server: str, variables: Variables) -> str:
    """Replace the secrets of a URL: its password and parameters of its query."""
    place, mark, query = url.partition("?")
    address = _address(place, server, variables, kind="url", name="")
    pairs = [pair.partition("=") for pair in query.split("&")]
    parameters = [
        f"{key}{equals}{variables.referring(server, 'parameter', unquote(key), value)}" for key, equals, value in pairs
    ]
    return f"{address}{mark}{'&'.join(parameters)}"


def _address(text: str, server: str, variables: Variables, *, kind: str, name: str) -> str:
    """Replace the password of an address, or the whole of another text that looks like a secret."""
    address = password_in(text)
    if address is None:
        return variables.referring(server, kind, name, text)
    password = variables.referring(server, kind, "password", address.password)
    return f"{variables.plain(address.before)}{password}{variables.plain(address.after)}"


class Variables:
    """The environment variables that imported servers need. Their values are never written or printed."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._uses: dict[str, str] = {}

    @property
    def uses(self) -> Mapping[str, str]:
        """The uses of the variables to set, by name: values from the file, and values that the editor asks for."""
        return self._uses

    def referring(self, server: str, kind: str, name: str, value: str) -> str:
        """Return the value for the configuration, with a reference to a variable in place of a secret.

        `kind`: the place of the value (`env`, `header` …). `name`: its name there.
        """
        for found in _FOREIGN.finditer(value):
            if found["kind"] == "input":
                variable = _variable(found["name"])
                self._values.setdefault(variable, found[0])
                self._uses.setdefault(variable, f"{kind} {name} of {server}")
        text = _own_references(value)
        if not text or _REFERENCE.search(text) or not (looks_secret((name,)) or _KEY.fullmatch(text)):
            return _escaped(text)
        scheme = _SCHEME.fullmatch(text)
        secret = scheme["secret"] if scheme else text
        variable = self._add(server, kind, name, secret)
        self._uses.setdefault(variable, f"{kind} {name} of {server}")
        return f"{scheme['scheme']} ${{{variable}}}" if scheme else f"${{{variable}}}"

    def plain(self, text: str) -> str:
        """Return a text that has no secrets for the configuration."""
        return _escaped(_own_references(text))

    def _add(self, server: str, kind: str, name: str, secret: str) -> str:
        """Add a variable and return its name: `name` for `env`; else, or if that is taken, the server and `name`."""
        wanted = _variable(name) if kind == "env" else _variable(f"{server}_{name}")
        number = 1
        while self._values.setdefault(wanted, secret) != secret:
            wanted = _variable(f"{server}_{name}" if number == 1 else f"{server}_{name}_{number}")
            number += 1
        return wanted


def _own_references(text: str) -> str:
    return _FOREIGN.sub(lambda found: f"${{{_variable(found['name'])}}}", text)


def _variable(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _escaped(text: str) -> str:
    """Escape each `${` that does not begin a reference as `$${`, which the configuration reads literally."""
    return re.sub(rf"({_REFERENCE.pattern})|\$\{{", lambda found: found[1] or "$${", text)
