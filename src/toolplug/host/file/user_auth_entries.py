"""The entries with `user_auth`: those of providers and of servers, and what they need of the rest of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolplug.config.document import Document
from toolplug.errors import Problem
from toolplug.execution.user_auth import AuthOwner, UserAuth
from toolplug.host.file.provider_entries import SECTION as PROVIDERS
from toolplug.host.file.provider_entries import ProviderEntries
from toolplug.host.file.settings import HostSettings
from toolplug.host.file.tool_servers import SECTION as SERVERS
from toolplug.host.file.tool_servers import SERVER_KIND, ServerEntries
from toolplug.host.keys import SET_KEY
from toolplug.providers.planning import KIND as PROVIDER


def list_user_auth(providers: ProviderEntries, servers: ServerEntries) -> Mapping[str, tuple[AuthOwner, UserAuth]]:
    """Return every enabled entry with `user_auth` by its key: those of providers, then those of MCP servers."""
    found: dict[str, tuple[AuthOwner, UserAuth]] = {}
    for key, wanted in providers.wanted.items():
        if wanted.build is not None and wanted.entry.user_auth is not None:
            found[key] = AuthOwner(PROVIDER, key), wanted.entry.user_auth
    for key, server in servers.servers.items():
        if server.enabled and server.user_auth is not None:
            found.setdefault(key, (AuthOwner(SERVER_KIND, key, server.url), server.user_auth))
    return found


def user_auth_problems(
    document: Document, settings: HostSettings, providers: ProviderEntries, servers: ServerEntries, *, on_network: bool
) -> Iterator[Problem]:
    """Yield a problem for each entry whose `user_auth` lacks something, or that another one's connections hide.

    `on_network`: the store is, so that no process can make the key of all.
    """
    login = getattr(getattr(settings, "credentials", None), "login", None)
    if login is not None and (settings.auth is None or settings.auth.jwt is None):
        message, hint = "has browsers sign in at auth.jwt.issuer, and auth.jwt is not configured", "add auth.jwt"
        yield document.problem(("credentials", "login"), code="login_without_jwt", message=message, hint=hint)
    entries = list_user_auth(providers, servers)
    if entries and on_network and settings.key is None:
        message = f"{next(iter(entries))!r} has user_auth, and the processes of this store need the same key"
        yield document.problem(("store",), code="no_key", message=message, hint=SET_KEY)
    for key, (owner, auth) in entries.items():
        section = PROVIDERS if owner.kind == PROVIDER else SERVERS
        path = (section, key, "user_auth")
        if key not in document.keys((section,)):
            continue  # of the user's own file, or of the host's code
        if auth.exchange is not None and (settings.auth is None or settings.auth.jwt is None):
            message, hint = "exchanges the JWTs of callers, and auth.jwt is not configured", "add auth.jwt"
            yield document.problem((*path, "exchange"), code="exchange_without_jwt", message=message, hint=hint)
        loaded = None if owner.url else providers.loaded.get(key)
        if (
            auth.oauth is not None
            and auth.oauth.issuer is None
            and loaded is not None
            and not loaded.type.names_sign_in
        ):
            message = "needs issuer: this type of provider names none, as an MCP server or an OpenAPI document does"
            yield document.problem((*path, "oauth"), code="no_issuer", message=message)
        if owner.kind == PROVIDER and key in servers.servers and servers.servers[key].user_auth is not None:
            message = f"the MCP server {key!r} has user_auth, too, and connections are found by the key of their entry"
            hint = "give one of the entries another key"
            yield document.problem(path, code="key_twice", message=message, hint=hint)
