"""The places and words of other programs' files of MCP servers: the one source for reading and for writing them.

The shapes are those that the programs document: Claude Desktop and Code, Cursor, VS Code, Zed, Windsurf, Gemini CLI,
opencode, Codex, Continue, Goose and LibreChat. `toolplug connect` writes for the six of `PROGRAMS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from toolplug.config.yaml_tree import Value

MAX_FILE_BYTES = 1024 * 1024
"""Of a file to import or to write to; a larger one is refused."""

_CLAUDE = ("mcpServers",)
_VS_CODE = ("servers",)
_CODEX = ("mcp_servers",)

SECTIONS: tuple[tuple[str, ...], ...] = (
    _CLAUDE,  # also Cursor, Windsurf, Gemini, LibreChat; a list in Continue's
    _VS_CODE,  # mcp.json
    ("mcp", "servers"),  # VS Code: settings.json
    ("context_servers",),  # Zed
    _CODEX,
    ("extensions",),  # Goose
    ("mcp",),  # opencode
)
"""The places of servers, each a mapping by name, or a list of mappings with a `name`."""

BEARER_VARIABLE = "bearer_token_env_var"
ENV_VARIABLES = "env_vars"
HEADER_VARIABLES = "env_http_headers"
"""Codex's keys for what it takes from variables by their names."""

WORDS: Mapping[str, str] = {
    "cmd": "command",
    "envs": "env",
    "environment": "env",
    "uri": "url",
    "httpUrl": "url",
    "serverUrl": "url",
    "http_headers": "headers",
}
"""What other programs call a key."""


class ClientName(StrEnum):
    """The programs that `toolplug connect` writes for, as its argument names them."""

    CLAUDE_CODE = "claude-code"
    CLAUDE_DESKTOP = "claude-desktop"
    CURSOR = "cursor"
    VS_CODE = "vscode"
    CODEX = "codex"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that the program starts. `variables`: of its environment, those to pass on."""

    command: str
    args: Sequence[str]
    variables: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server at a URL. `key`: the variable with the key that it needs; None for a server without."""

    url: str
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgram:
    """How a program keeps its servers.

    `place`: its file, for a person on any system. `section`: the key of the mapping by name. `reference`: how a value
    refers to the variable NAME; empty if it cannot. `typed`: an entry names its transport as `type`. `after`: what the
    user does next.
    """

    title: str
    place: str
    section: str
    reference: str
    typed: bool = True
    after: str

    def entry(self, server: StartedServer | RemoteServer) -> Mapping[str, Value]:
        """Return the program's own entry for the server. It holds names of variables, never their values."""
        kind: dict[str, Value] = {"type": "stdio" if isinstance(server, StartedServer) else "http"}
        whole: dict[str, Value] = kind if self.typed else {}
        if isinstance(server, StartedServer):
            whole |= {"command": server.command, "args": [*server.args]}
            if server.variables and self.section == _CODEX[0]:
                whole[ENV_VARIABLES] = [*server.variables]
            elif server.variables and self.reference:
                whole["env"] = {name: self._refer(name) for name in server.variables}
            return whole
        whole["url"] = server.url
        if server.key is not None and self.section == _CODEX[0]:
            whole[BEARER_VARIABLE] = server.key
        elif server.key is not None:
            whole["headers"] = {"Authorization": f"Bearer {self._refer(server.key)}"}
        return whole

    def _refer(self, name: str) -> str:
        return self.reference.replace("NAME", name)


class _StartingOnly(ClientProgram):
    """A program that starts servers and knows no URLs: another one, mcp-remote, connects to the URL."""

    def entry(self, server: StartedServer | RemoteServer) -> Mapping[str, Value]:
        if isinstance(server, StartedServer):
            return ClientProgram.entry(self, server)
        args: list[Value] = ["-y", "mcp-remote", server.url]
        if server.url.startswith("http://"):
            args.append("--allow-http")  # it refuses other computers without
        if server.key is not None:
            # Without a space, which the program breaks the argument at on Windows; mcp-remote expands the variable.
            args += ["--header", f"X-API-Key:${{{server.key}}}"]
        return {"command": "npx", "args": args}


PROGRAMS: Mapping[ClientName, ClientProgram] = {
    ClientName.CLAUDE_CODE: ClientProgram(
        title="Claude Code",
        place=".mcp.json of the folder it is started in",
        section=_CLAUDE[0],
        reference="${NAME}",
        after="start claude in that folder and approve the server, or see `claude mcp list`",
    ),
    ClientName.CLAUDE_DESKTOP: _StartingOnly(
        title="Claude Desktop",
        place="claude_desktop_config.json, which Settings, Developer, Edit Config opens",
        section=_CLAUDE[0],
        reference="",
        typed=False,
        after="restart Claude Desktop",
    ),
    ClientName.CURSOR: ClientProgram(
        title="Cursor",
        place="~/.cursor/mcp.json",
        section=_CLAUDE[0],
        reference="${env:NAME}",
        after="enable the server in Cursor's settings, under MCP",
    ),
    ClientName.VS_CODE: ClientProgram(
        title="VS Code",
        place="mcp.json, which the command `MCP: Open User Configuration` opens",
        section=_VS_CODE[0],
        reference="${env:NAME}",
        after="run the command `MCP: List Servers` and start the server",
    ),
    ClientName.CODEX: ClientProgram(
        title="Codex",
        place="~/.codex/config.toml",
        section=_CODEX[0],
        reference="",
        typed=False,
        after="see `codex mcp list`",
    ),
    ClientName.GEMINI: ClientProgram(
        title="Gemini CLI",
        place="~/.gemini/settings.json",
        section=_CLAUDE[0],
        reference="${NAME}",
        after="see `gemini mcp list`",
    ),
}


def client_file(client: ClientName, environ: Mapping[str, str], *, home: Path, system: str) -> Path:
    """Return the file of the program: the user's own, and for Claude Code that of the folder it is started in.

    `system` is `sys.platform`. Claude Code's own file of the user has its state, too, which it writes all the time.
    """
    match client:
        case ClientName.CLAUDE_CODE:
            return Path(".mcp.json")
        case ClientName.CURSOR:
            return home / ".cursor" / "mcp.json"
        case ClientName.CODEX:
            return Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"
        case ClientName.GEMINI:
            return home / ".gemini" / "settings.json"
        case ClientName.CLAUDE_DESKTOP:
            return _application_data(environ, home, system) / "Claude" / "claude_desktop_config.json"
        case ClientName.VS_CODE:
            return _application_data(environ, home, system) / "Code" / "User" / "mcp.json"


def _application_data(environ: Mapping[str, str], home: Path, system: str) -> Path:
    """Return the folder of the user in which programs of a desktop keep their files."""
    if system == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    if system == "darwin":
        return home / "Library" / "Application Support"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def file_text(program: ClientProgram, name: str, entry: Mapping[str, Value], *, line_end: str = "\n") -> str:
    """Return a file, or a part of one, that has only this server."""
    if program.section == _CODEX[0]:
        lines = [f"[{program.section}.{name}]", *(f"{key} = {_toml(value)}" for key, value in entry.items())]
        return "".join(f"{line}{line_end}" for line in lines)
    text = json.dumps({program.section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    return text.replace("\n", line_end)


def _toml(value: Value) -> str:
    """Return a text or a list of texts in TOML, whose strings are those of JSON but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def expand_path(text: str, environ: Mapping[str, str], *, home: Path) -> Path:
    """Return the path that a person wrote, with `~` and `%NAME%` at its begin, which only some shells expand.

    `%APPDATA%` is how the pages of these programs name their files; PowerShell passes it as it is.
    """
    if text.startswith("%") and "%" in text[1:]:
        name, _, rest = text[1:].partition("%")
        found = next((value for key, value in environ.items() if key.upper() == name.upper()), "")
        if found:
            return Path(found, rest.lstrip("/\\").replace("\\", os.sep))
    if text == "~" or text.startswith(("~/", "~\\")):
        return Path(home, text[2:])
    return Path(text)
