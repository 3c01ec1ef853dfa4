"""`toolplug connections`: who has signed in where, and the end of it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple, TypeAlias

import typer

from toolplug.catalog.call import Principal
from toolplug.cli.event_loop import async_command
from toolplug.cli.options import TenantOptions, config_file
from toolplug.cli.output import print_answer, print_listing
from toolplug.cli.store import open_shared_store
from toolplug.config.units import timestamp
from toolplug.errors import ApiError
from toolplug.execution.user_auth import AuthOwner, UserAuth
from toolplug.host.file.configuration import read_beside_host
from toolplug.host.file.user_auth_entries import list_user_auth
from toolplug.host.keys.host_key import HostKey
from toolplug.net.egress import Egress
from toolplug.packages.entry_points import find_installed
from toolplug.parts.credentials.oauth import OAuthCredentials
from toolplug.parts.credentials.records import UserConnection, connections_of_tenant
from toolplug.parts.credentials.running import HEADER, PURPOSE

_INSTEAD = "GET, POST and DELETE of /v1/connections"

EntryArgument: TypeAlias = Annotated[str, typer.Argument(metavar="KEY", help="The entry with user_auth.")]
CallerOption: TypeAlias = Annotated[str, typer.Option("--caller", metavar="NAME", help="Whose connection it is.")]

app: typer.Typer = typer.Typer(name="connections", help="The users who have signed in to servers, and their end.")


@async_command(app, "list")
async def list_connections(
    options: TenantOptions,
    caller: Annotated[str | None, typer.Option("--caller", metavar="NAME", help="Those of this caller.")] = None,
    server: Annotated[str | None, typer.Option("--server", metavar="KEY", help="Those to this entry.")] = None,
) -> None:
    """List who of this tenant is connected to which server or provider.

    Example: toolplug connections list --server jira
    """
    found: list[UserConnection] = []
    async with open_shared_store(config_file(options.config), "connections", _INSTEAD) as store:
        async for each in connections_of_tenant(store, options.tenant):
            if caller in (None, each.subject) and server in (None, each.key):
                found.append(each)
    found.sort(key=lambda each: (each.key, each.subject))
    shown = [
        {
            "server": each.key,
            "caller": each.subject,
            "issuer": each.issuer,
            "scopes": each.scope.split(),
            "connected_at": timestamp(each.connected_at),
        }
        for each in found
    ]
    rows = [(each.key, each.subject, each.issuer, each.scope, timestamp(each.connected_at)) for each in found]
    columns = ["SERVER", "CALLER", "ISSUER", "SCOPES", "SINCE"]
    print_listing(options.as_json, {"connections": shown}, columns, rows, "nobody is connected")


@async_command(app)
async def link(options: TenantOptions, server: EntryArgument, caller: CallerOption) -> None:
    """Make a link with which a caller signs in: used once, within ten minutes, by that caller alone.

    Example: toolplug connections link jira --caller ada
    """
    async with _open(options, server) as (tokens, owner, auth, public_url):
        if auth.oauth is None:
            how = f"it brings a credential as {HEADER}{auth.given_name}" if auth.given_name else "it calls with a JWT"
            raise ApiError("no_link", f"nobody signs in to {server!r} by a link; {how}")
        if public_url is None:
            raise ApiError("no_link", "a link needs the address by which browsers find the host: set http.public_url")
        made = await tokens.link(owner, Principal(caller, options.tenant), public_url)
    text = f"{made['url']}\nIt is for {caller} alone: who signs in by it lends the account to {caller}."
    print_answer(options.as_json, {**made, "caller": caller}, text)


@async_command(app)
async def disconnect(options: TenantOptions, server: EntryArgument, caller: CallerOption) -> None:
    """Disconnect a caller: its tokens are forgotten, and revoked where the issuer can. It has to sign in again.

    Example: toolplug connections disconnect jira --caller ada
    """
    async with _open(options, server) as (tokens, owner, auth, _):
        existed, revoked = await tokens.disconnect(owner, auth.oauth, Principal(caller, options.tenant))
    if not existed:
        raise ApiError(
            "connection_not_found", f"{caller!r} of tenant {options.tenant!r} is not connected to {server!r}"
        )
    text = f"{caller} is disconnected from {server}; the issuer has {'' if revoked else 'not '}revoked the tokens"
    print_answer(options.as_json, {"server": server, "caller": caller, "revoked": revoked}, text)


class _OpenedTokens(NamedTuple):
    """The tokens of the configured store, the entry that a command names, and the address of links."""

    tokens: OAuthCredentials
    owner: AuthOwner
    auth: UserAuth
    public_url: str | None


@asynccontextmanager
async def _open(options: TenantOptions, server: str) -> AsyncGenerator[_OpenedTokens]:
    """Open the tokens beside a running host. Raises `ApiError` for an entry without `user_auth`."""
    path = config_file(options.config)
    configuration = read_beside_host(path, os.environ, find_installed())
    entry = list_user_auth(configuration.providers, configuration.servers).get(server)
    if entry is None:
        raise ApiError("connection_not_found", f"no entry {server!r} has user_auth")
    async with open_shared_store(path, "connections", _INSTEAD) as store:
        place, settings = configuration.store, configuration.settings
        key = HostKey(lambda: settings.key, store, configuration.folder, place.state_folder, given=place.on_network)
        egress = Egress(settings.egress.allow)
        tokens = OAuthCredentials(store, lambda: key.sealer(PURPOSE), lambda: egress)
        yield _OpenedTokens(tokens, *entry, settings.http.public_url)
