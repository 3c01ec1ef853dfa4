"""A server of another program's file as an entry of `mcp_servers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from toolplug.cli.importing.claude_file import ClaudeServer
from toolplug.cli.importing.variables import Variables
from toolplug.config.arguments import named_arguments, password_in
from toolplug.config.node import Value

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
