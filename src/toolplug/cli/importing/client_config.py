"""A desktop client's file of MCP servers: `{"mcpServers": {name: {command, args, env} or {url, headers}}}`."""

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
from toolplug.config.yaml_tree import Value, shown_path
from toolplug.errors import ConfigError, Problem

MAX_ID = 64

_OTHER = re.compile(r"[^a-z0-9_]+")
_INSTEAD = "server"


def legal_ids(names: Iterable[str]) -> Mapping[str, str]:
    """An id for each name: the name itself where it is one, and no id twice."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        wanted = _legal(name)
        made, number = wanted, 1
        while made in taken:
            number += 1
            ending = f"-{number}"
            made = wanted[: MAX_ID - len(ending)] + ending
        taken.add(made)
        found[name] = made
    return found


def _legal(name: str) -> str:
    plain = _OTHER.sub("-", name.lower()).strip("-_")
    if not plain:
        return _INSTEAD
    return (plain if plain[0].isalpha() else f"{_INSTEAD}-{plain}")[:MAX_ID]


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$\{{{_NAME}(?::-[^}}]*)?\}}")
_FOREIGN = re.compile(r"\$\{(?P<kind>env|input):(?P<name>[^}]+)\}")
"""How editors write a variable of the environment, and what they ask the user for."""
_SCHEME = re.compile(r"(?P<scheme>Bearer|Basic|Token) +(?P<secret>\S+)", re.IGNORECASE)
_SHAPES = re.compile(r"(?:sk-|gh[a-z]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.-]{8,}.*")
"""How the keys of well-known services begin."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9]+")


class Variables:
    """The environment variables that the imported servers need. No value of one is ever written or shown."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._uses: dict[str, str] = {}

    @property
    def uses(self) -> Mapping[str, str]:
        """What each is for, by name: those whose value stood in the file, or was asked for."""
        return self._uses

    def referring(self, server: str, kind: str, name: str, value: str) -> str:
        """The value as it goes into the configuration: with a reference in place of what looks like a secret.

        `kind` is where it stands (`env`, `header` …), `name` its own name there.
        """
        for found in _FOREIGN.finditer(value):
            if found["kind"] == "input":
                variable = _variable(found["name"])
                self._values.setdefault(variable, found[0])
                self._uses.setdefault(variable, f"{kind} {name} of {server}")
        text = _own_references(value)
        if _REFERENCE.search(text):
            return _escaped(text)
        if not text or not (looks_secret((name,)) or _SHAPES.fullmatch(text)):
            return _escaped(text)
        scheme = _SCHEME.fullmatch(text)
        secret = scheme["secret"] if scheme else text
        variable = self._named(server, kind, name, secret)
        self._uses.setdefault(variable, f"{kind} {name} of {server}")
        return f"{scheme['scheme']} ${{{variable}}}" if scheme else f"${{{variable}}}"

    def plain(self, text: str) -> str:
        """A text that is no secret, as it goes into the configuration."""
        return _escaped(_own_references(text))

    def _named(self, server: str, kind: str, name: str, secret: str) -> str:
        """The variable's own name under `env`; with the server's before it elsewhere, and where two would meet."""
        wanted = _variable(name) if kind == "env" else _variable(f"{server}_{name}")
        number = 1
        while self._values.setdefault(wanted, secret) != secret:
            wanted = _variable(f"{server}_{name}" if number == 1 else f"{server}_{name}_{number}")
            number += 1
        return wanted


def _own_references(text: str) -> str:
    return _FOREIGN.sub(lambda found: f"${{{_variable(found['name'])}}}", text)


def _variable(text: str) -> str:
    name = _ILLEGAL.sub("_", text).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _escaped(text: str) -> str:
    """Every `${` that begins no reference as the configuration writes it literally."""
    parts: list[str] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        parts += [text[end : found.start()].replace("${", "$${"), found[0]]
        end = found.end()
    return "".join([*parts, text[end:].replace("${", "$${")])


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


_FORMER = "sse"


def server_entry(server: ClaudeServer, name: str, variables: Variables) -> Mapping[str, Value]:
    """The entry under this id, with its secrets left to the environment."""
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
    """What the entry cannot say."""
    if server.ignored:
        yield f"left out: {', '.join(server.ignored)}"
    if server.type == _FORMER:
        yield "its transport is the former one, sse; Streamable HTTP is spoken here, which is often at another path"


def _named(values: Mapping[str, str | None], server: str, kind: str, variables: Variables) -> dict[str, Value]:
    return {key: variables.referring(server, kind, key, value) for key, value in values.items() if value is not None}


def _arguments(args: Sequence[str], server: str, variables: Variables) -> Iterator[str]:
    for argument in named_arguments(args):
        value = _address(argument.value, server, variables, kind="argument", name=argument.name)
        yield f"{variables.plain(argument.before)}{value}"


def _url(url: str, server: str, variables: Variables) -> str:
    """The URL, where a password, or a parameter of its query, may be a key."""
    place, mark, query = url.partition("?")
    shown_place = _address(place, server, variables, kind="url", name="")
    pairs = [pair.partition("=") for pair in query.split("&")]
    shown = [
        f"{key}{equals}{variables.referring(server, 'parameter', unquote(key), value)}" for key, equals, value in pairs
    ]
    return f"{shown_place}{mark}{'&'.join(shown)}"


def _address(text: str, server: str, variables: Variables, *, kind: str, name: str) -> str:
    """The text, of which only the password goes where it is an address that has one."""
    address = password_in(text)
    if address is None:
        return variables.referring(server, kind, name, text)
    password = variables.referring(server, kind, "password", address.password)
    return f"{variables.plain(address.before)}{password}{variables.plain(address.after)}"
