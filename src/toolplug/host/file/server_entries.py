"""The `mcp_servers:` sections of the configuration and of the user's own file: a wrong entry costs only itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from toolplug.config.document import Document, read_document
from toolplug.config.environment import expand
from toolplug.config.node import MappingNode, ScalarNode
from toolplug.config.secrets import read_secret_files
from toolplug.config.section import Section
from toolplug.config.validated import validated
from toolplug.discovery.known_server import ServerName
from toolplug.errors import ConfigError, Problem
from toolplug.execution.knobs import DEFAULT_ORIGIN
from toolplug.host.file.mcp_settings import McpServerSettings, OAuthSettings
from toolplug.mcp.server import Server
from toolplug.mcp.transport import ClientCredentials, Command, Endpoint, Transport

SECTION = "mcp_servers"
SERVER_ID = r"^[a-z][a-z0-9_-]{0,63}$"
SERVER_RULE = "a lower-case letter, then up to 63 of a-z 0-9 _ -"

_ID = re.compile(SERVER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntries:
    """Every server by id: those of the user's own file, then the configuration's, which replace them whole.

    `ids` are also those of wrong entries, whose `problems` are reported; the host starts without them. `withheld` are
    the texts of an entry that came from the environment or from secret files.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    ids: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    withheld: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    @classmethod
    def read(cls, document: Document, user: Path | None, environ: Mapping[str, str]) -> ServerEntries:
        """Read the entries of both; `user` is the path of the user's file, which need not be there."""
        problems: list[Problem] = []
        files: dict[str, Document] = {}
        for file in (*_user_documents(user, problems), document):
            files.update((name, file) for name in _ids(file, problems))
        servers: dict[str, Server] = {}
        withheld: dict[str, frozenset[str]] = {}
        for name, file in files.items():
            try:
                section = _section(file, name, environ)
                servers[name] = _server(section, name)
            except ConfigError as error:
                problems += error.problems
            else:
                withheld[name] = section.withheld
        return cls(servers=servers, ids=tuple(files), problems=tuple(problems), withheld=withheld)


def is_server_id(text: str) -> bool:
    """May a server be called so."""
    return bool(_ID.fullmatch(text))


def server_of(
    settings: McpServerSettings, name: ServerName, origin: Callable[..., str], *, folder: Path, trusted: bool
) -> Server:
    """The server that these settings describe; relative paths start at the folder."""
    return Server(
        name=name,
        transport=_transport(settings, folder, trusted=trusted),
        enabled=settings.enabled,
        discovery_timeout_s=settings.discovery_timeout,
        pin=settings.pin,
        policy=settings.policy,
        tools=settings.tools,
        limits=settings.limits,
        origin=origin,
    )


def _ids(document: Document, problems: list[Problem]) -> Iterator[str]:
    section = document.root.entries.get(SECTION)
    node = section.node if section is not None else None
    if isinstance(node, MappingNode):
        yield from node.entries
    elif node is not None and not (isinstance(node, ScalarNode) and node.value is None):
        message = "should be a mapping from server id to settings"
        problems.append(document.problem((SECTION,), code="wrong_value", message=message))


def _user_documents(user: Path | None, problems: list[Problem]) -> Iterator[Document]:
    """The user's own file, where it is there and can be read."""
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
    document = section.document
    settings = validated(section, McpServerSettings)
    origin = partial(_origin, document, (SECTION, name))
    return server_of(settings, ServerName(name), origin, folder=document.folder, trusted=True)


def _origin(document: Document, root: tuple[str, ...], *path: str) -> str:
    """The place of a path below an entry, as `explain` shows it."""
    whole = (*root, *path)
    try:
        document.node(whole)
    except KeyError:
        return DEFAULT_ORIGIN
    return f"{document.file}:{document.key_mark(whole).line}"


def _transport(settings: McpServerSettings, folder: Path, *, trusted: bool) -> Transport:
    if settings.command is not None:
        return Command(
            command=settings.command,
            args=settings.args,
            env=_revealed(settings.env),
            cwd=folder if settings.cwd is None else folder / settings.cwd,
        )
    return Endpoint(
        url=settings.url or "",
        headers=_revealed(settings.headers),
        oauth=None if settings.oauth is None else _credentials(settings.oauth),
        trusted=trusted,
    )


def _credentials(settings: OAuthSettings) -> ClientCredentials:
    return ClientCredentials(
        client_id=settings.client_id,
        client_secret=settings.client_secret.get_secret_value(),
        scope=settings.scope,
        issuer=settings.issuer,
    )


def _revealed(secrets: Mapping[str, SecretStr]) -> Mapping[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}
