"""The `mcp_servers:` sections of the configuration and of the user's file; an invalid entry disables only itself."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.document import Document, Section, expand, read_document, section_keys
from toolplug.config.masking import mask_secrets
from toolplug.config.problems import read_secret_files, validate_section
from toolplug.config.units import Duration, FileMapping, shape_error
from toolplug.config.yaml_tree import MappingNode
from toolplug.errors import ConfigError, Problem
from toolplug.execution.plans import Policy
from toolplug.execution.resolved_limits import NO_LIMITS, Limits
from toolplug.execution.user_auth import UserAuth
from toolplug.host.file.settings import OfferSetting, ToolRuleSetting, acting
from toolplug.host.file.tool_servers import SECTION, EntrySchema
from toolplug.parts.mcp.client.connection import MISSING
from toolplug.parts.mcp.client.server_config import (
    ClientCredentials,
    Command,
    Endpoint,
    Server,
    Transport,
    is_command_line,
)
from toolplug.parts.mcp.discovery.record import ServerName
from toolplug.parts.mcp.limits import LONGEST_DISCOVERY_S

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")


def is_header(name: str, value: str) -> bool:
    """Return whether a header can be sent: the name a token, the value one line of printable ASCII."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))


SHORTEST_REDISCOVERY_S = 1.0
PREFIX = "^[a-z][a-z0-9_-]{0,31}$"


def _text_of_number(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, BeforeValidator(_text_of_number, json_schema_input_type=str | int)]
_Secret = Annotated[SecretStr, BeforeValidator(_text_of_number, json_schema_input_type=str | int)]


def _sendable(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if not is_header(name, value.get_secret_value()):
            raise PydanticCustomError(
                "no_header",
                "{name} cannot be sent: a name is one word, a value one line of ASCII",
                {"name": repr(name[:80])},
            )
    return headers


def _with_host(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise shape_error("an http or https address with a host")
    return url


class OAuthSettings(FileMapping):
    """The OAuth 2.1 client credentials with which a token for the server is fetched."""

    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Annotated[SecretStr, Field(description="best as ${NAME}; or client_secret_file")]
    scope: Annotated[
        str | None, Field(description="the scopes to ask for, separated by spaces; none: those that the server names")
    ] = None
    issuer: Annotated[
        str | None, Field(pattern="^https?://", description="the authorization server; none: the one that it names")
    ] = None


_NO_KIND = "leave it out: a command is started, and a url is asked by Streamable HTTP"
_OF_OTHER_CLIENTS = {
    "cmd": "here it is command",
    "environment": "here it is env",
    "httpUrl": "here it is url",
    "serverUrl": "here it is url",
    "transport": _NO_KIND,
    "type": _NO_KIND,
    "workdir": "here it is cwd",
}
"""Keys of the files of other MCP clients, whose entries people copy."""


class McpServerSettings(FileMapping):
    """One MCP server: either a command that is started, or a URL that is asked."""

    elsewhere: ClassVar[Mapping[str, str]] = _OF_OTHER_CLIENTS

    command: Annotated[str | None, Field(min_length=1, description="the program; no shell reads it")] = None
    args: Annotated[tuple[_Text, ...], Field(strict=False)] = ()
    env: Annotated[dict[str, _Secret], Field(description="added to the few variables that every child gets")] = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    cwd: Annotated[str | None, Field(description="relative to the folder of this file, which it is by default")] = None
    url: Annotated[
        Annotated[str, Field(pattern="^https?://"), AfterValidator(_with_host)] | None,
        Field(description="of its Streamable HTTP endpoint"),
    ] = None
    headers: Annotated[dict[str, _Secret], AfterValidator(_sendable), Field(description="sent with every request")] = {}  # noqa: RUF012  as above
    oauth: OAuthSettings | None = None
    user_auth: Annotated[
        UserAuth | None,
        Field(description="callers act as themselves: their own credential in place of headers and oauth in each call"),
    ] = None
    enabled: Annotated[bool, Field(description="false: never started, no tools")] = True
    discovery_timeout: Annotated[
        Duration, Field(gt=0, le=LONGEST_DISCOVERY_S, description="how long listing its tools may take")
    ] = 30.0
    rediscover: Annotated[
        Duration | None,
        Field(ge=SHORTEST_REDISCOVERY_S, description="list its tools again when the list is this old; none: never"),
    ] = None
    prefix: Annotated[
        str | None,
        Field(pattern=PREFIX, description="its tools are prefix.name in every catalog without agent"),
    ] = None
    policy: Annotated[Policy, Field(description="of the tools that tools says nothing of")] = "allow"
    offer: OfferSetting = "always"
    pin: Annotated[
        bool, Field(description="quarantine a tool that is new, or whose definition has changed, until it is accepted")
    ] = False
    limits: Annotated[Limits, AfterValidator(acting)] = NO_LIMITS
    tools: Annotated[
        dict[str, ToolRuleSetting],
        Field(description="rules by the server's own names: a policy, or policy, limits, tenants and offer"),
    ] = {}  # noqa: RUF012  as above

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("one_transport", "must have exactly one of command and url")
        if self.command is None and (self.args or self.env or self.cwd is not None):
            raise PydanticCustomError("of_command", "args, env and cwd are for a command; a url has headers and oauth")
        if self.url is None and (self.headers or self.oauth is not None or self.user_auth is not None):
            why = "headers, oauth and user_auth are for a url; a command has args, env and cwd"
            raise PydanticCustomError("of_url", why)
        return self


_NONE: Mapping[str, str] = MappingProxyType({})

SERVER_ID = r"^[a-z][a-z0-9_-]{0,63}$"
SERVER_RULE = "a lower-case letter, then up to 63 of a-z 0-9 _ -"

_ID = re.compile(SERVER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntries:
    """Every server by id: those of the user's own file, then those of the configuration, which replace them.

    `ids` include those of invalid entries, whose `problems` are reported; the host starts without them. An enabled
    server without the packages of the extra `mcp` is a problem too, and is listed as one that failed. `withheld` are
    the texts of each entry that came from the environment or from secret files, and `documents` has the file of each.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    ids: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    withheld: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    documents: Mapping[str, Document] = field(default_factory=dict[str, Document])

    @property
    def model(self) -> type[McpServerSettings]:
        return McpServerSettings

    def warnings(self, document: Document) -> Iterator[Problem]:
        """Yield a warning for each command that does not exist; `document` is the host's own file."""
        for name, server in self.servers.items():
            command = server.transport
            if server.enabled and isinstance(command, Command) and not _is_there(command, document.folder):
                path = (SECTION, name, "command")
                secrets = self.withheld.get(name, ())
                shown = mask_secrets(command.command, secrets)
                message, hint = f"there is no command {shown!r}", _command_hint(shown)
                if name in document.keys((SECTION,)):
                    yield document.problem(path, code="command_not_found", message=message, hint=hint)
                else:  # in the user's own file
                    yield Problem(code="command_not_found", message=message, path=".".join(path), hint=hint)

    def lock(self, tools: Callable[[str], Mapping[str, str]]) -> ServerEntries:
        """Return the entries, of whose tools those alone may be called whose digests are given for the server."""
        return replace(self, servers={key: replace(each, locked=tools(key)) for key, each in self.servers.items()})

    @classmethod
    def read(
        cls, document: Document, user: Path | None, environ: Mapping[str, str], taken: Mapping[str, str] = _NONE
    ) -> ServerEntries:
        """Read the entries of the document and of the `user` file, which need not exist.

        `taken` maps the prefixes of toolsets to their owners, as text for messages.
        """
        problems: list[Problem] = []
        files: dict[str, Document] = {}
        for file in (*_user_documents(user, problems), document):
            files.update((name, file) for name in section_keys(file, SECTION, "server id", problems))
        servers: dict[str, Server] = {}
        withheld: dict[str, frozenset[str]] = {}
        for name, file in files.items():
            try:
                section = _section(file, name, environ)
                server = _server(section, name)
                _check_prefix(file, server, {**taken, **_prefixes(servers)})
                servers[name] = server
            except ConfigError as error:
                problems += error.problems
            else:
                withheld[name] = section.withheld
                if server.enabled and find_spec("mcp") is None:
                    text, _, hint = MISSING.partition(": ")
                    problems.append(file.problem((SECTION, name), code="not_installed", message=text, hint=hint))
        return cls(servers=servers, ids=tuple(files), problems=tuple(problems), withheld=withheld, documents=files)


def _command_hint(command: str) -> str:
    if not is_command_line(command):
        return "install it, or write its whole path"
    program, *arguments = command.split()
    return f"no shell reads it; write: command: {program}, args: {json.dumps(arguments, ensure_ascii=False)}"


def _is_there(command: Command, folder: Path) -> bool:
    program = command.command
    if os.path.dirname(program):
        program = str((command.cwd or folder) / program)
    return which(program, path=command.env.get("PATH")) is not None


def _prefixes(servers: Mapping[str, Server]) -> dict[str, str]:
    return {
        item.prefix: f"MCP server {name!r} ({item.origin('prefix')})" for name, item in servers.items() if item.prefix
    }


def _check_prefix(document: Document, server: Server, taken: Mapping[str, str]) -> None:
    if server.prefix is not None and server.prefix in taken:
        message = f"the prefix {server.prefix!r} is that of {taken[server.prefix]}; give another one"
        path = (SECTION, server.name.id, "prefix")
        raise ConfigError([document.problem(path, code="duplicate_prefix", message=message)])


def is_server_id(text: str) -> bool:
    """Return whether the text is a valid server id."""
    return bool(_ID.fullmatch(text))


def _user_documents(user: Path | None, problems: list[Problem]) -> Iterator[Document]:
    """Yield the user's own file if it exists and can be read."""
    if user is None or not user.is_file():
        return
    try:
        document = read_document(user)
    except ConfigError as error:
        problems += error.problems
        return
    for name in document.root.entries:
        if name != SECTION:
            message = f"the user's own file may hold {SECTION} and nothing else"
            problems.append(document.problem((name,), code="foreign_section", message=message, at_key=True))
    yield document


def _section(document: Document, name: str, environ: Mapping[str, str]) -> Section:
    path = (SECTION, name)
    if not is_server_id(name):
        message = f"{name!r} is no server id; {SERVER_RULE} are allowed"
        raise ConfigError([document.problem(path, code="wrong_key", message=message, at_key=True)])
    if not isinstance(document.node(path), MappingNode):
        raise ConfigError([document.problem(path, code="wrong_value", message="should be a mapping of settings")])
    return read_secret_files(expand(document, path, environ), McpServerSettings)


def _server(section: Section, name: str) -> Server:
    """Return the server of an entry; relative paths are relative to the folder of its file."""
    document = section.document
    settings = validate_section(section, McpServerSettings)
    return Server(
        name=ServerName(name),
        transport=_transport(settings, document.folder),
        enabled=settings.enabled,
        discovery_timeout_s=settings.discovery_timeout,
        rediscover_s=settings.rediscover,
        pin=settings.pin,
        prefix=settings.prefix,
        policy=settings.policy,
        offer=settings.offer,
        tools=settings.tools,
        limits=settings.limits,
        origin=lambda *path: document.origin_of((SECTION, name, *path)),
    )


def _transport(settings: McpServerSettings, folder: Path) -> Transport:
    if settings.command is not None:
        return Command(
            command=settings.command,
            args=settings.args,
            env=_reveal(settings.env),
            cwd=folder if settings.cwd is None else folder / settings.cwd,
        )
    oauth = settings.oauth
    return Endpoint(
        url=settings.url or "",
        headers=_reveal(settings.headers),
        oauth=oauth
        and ClientCredentials(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret.get_secret_value(),
            scope=oauth.scope,
            issuer=oauth.issuer,
        ),
        user_auth=settings.user_auth,
        trusted=True,
    )


def _reveal(secrets: Mapping[str, SecretStr]) -> Mapping[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def entry_schema() -> EntrySchema:
    """Return the JSON Schema of the section."""
    return EntrySchema(
        name="mcp_server",
        owner="server",
        model=McpServerSettings,
        description="One entry for each MCP server; toolsets take their tools with `from: mcp:ID`.",
        id_pattern=SERVER_ID,
        either=({"required": ["command"]}, {"required": ["url"]}),
    )
