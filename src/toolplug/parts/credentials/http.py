"""What callers see of their connections, and how they make and end them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolplug.catalog.call import ADMIN, Principal
from toolplug.catalog.exact_json import Answer
from toolplug.config.units import timestamp
from toolplug.errors import ApiError
from toolplug.execution.user_auth import AuthOwner, UserAuth
from toolplug.http.auth.authentication import insufficient_scope, viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, part_of, passed_credentials, query_fields
from toolplug.http.routing import CALL, TENANT, Parameter, answers, route
from toolplug.parts.credentials.running import HEADER, RunningCredentials
from toolplug.parts.credentials.service import tokens_of
from toolplug.parts.credentials.tokens import user_key

_NO_STORE = {"cache-control": "no-store"}
_CALLER = Parameter("caller", "the subject whose connections these are: for `admin`, of another tenant for `operator`")


class ConnectionAnswer(Answer):
    """One server or provider with `user_auth`, and whether the caller is connected to it."""

    server: Annotated[str, Field(description="the key of its entry")]
    kind: Annotated[Literal["mcp", "provider"], Field(description="what the entry is of")]
    connected: bool
    header: Annotated[str | None, Field(description="that carries the credential, where the caller brings it")]
    issuer: Annotated[str | None, Field(description="at which the caller has signed in")]
    scopes: list[str]
    connected_at: str | None
    expires_at: Annotated[str | None, Field(description="of the access token, which is renewed")]


class ConnectionList(TypedDict):
    """The connections of one caller, in the order of the file."""

    connections: list[ConnectionAnswer]


class LinkAnswer(Answer):
    """A link with which the caller signs in."""

    url: str
    server: str
    expires_at: str


class DisconnectedAnswer(Answer):
    """What has become of a connection."""

    server: str
    connected: Literal[False]
    revoked: Annotated[bool, Field(description="did the issuer end the tokens, too")]


def _user_of(request: HostRequest) -> Principal:
    """Return the caller, or the one that the query names. Raises `HttpProblem`."""
    viewer = viewer_of(request)
    name = query_fields(request).get("caller")
    if name is None:
        return viewer
    own_tenant = viewer is request.state["principal"]
    if own_tenant and name != viewer.subject and not viewer.has_scope(ADMIN):
        raise insufficient_scope(ADMIN)
    return replace(viewer, subject=name)


def _not_found() -> ApiError:
    return ApiError("connection_not_found", "there is no server or provider of this name with user_auth")


def _entry(request: HostRequest) -> tuple[RunningCredentials, AuthOwner, UserAuth]:
    part, name = part_of(request, RunningCredentials), request.path_params["server"]
    found = part.entries().get(name)
    if found is None:
        raise _not_found()
    return part, *found


async def _show(
    part: RunningCredentials, request: HostRequest, who: Principal, owner: AuthOwner, auth: UserAuth
) -> ConnectionAnswer:
    kept = None if auth.oauth is None else await tokens_of(part).oauth.records.read(user_key(owner, who), owner)
    known = None if kept is None or kept.tokens is None else kept.connection
    exchanged = auth.exchange is not None and await tokens_of(part).oauth.records.has_exchanged(user_key(owner, who))
    # What this request brings is of who sends it, and not of the one that it asks about.
    own = who.subject == request.state["principal"].subject and who.tenant == request.state["principal"].tenant
    brought = own and auth.given_name and auth.given_name in passed_credentials(request.state["headers"])
    return {
        "server": owner.key,
        "kind": "mcp" if owner.url else "provider",
        "connected": known is not None or bool(brought) or exchanged,
        "header": f"{HEADER}{auth.given_name}" if auth.given_name else None,
        "issuer": None if known is None else known.issuer,
        "scopes": [] if known is None else known.scope.split(),
        "connected_at": None if known is None else timestamp(known.connected_at),
        "expires_at": timestamp(known.expires_at) if known is not None and known.expires_at else None,
    }


@route("GET", "/v1/connections", CALL, "The systems at which a caller acts as itself", parameters=(_CALLER, TENANT))
@answers(ConnectionList)
async def list_connections(request: HostRequest) -> OrjsonResponse[ConnectionList]:
    """Answer every entry with `user_auth` that the caller may use, connected or not."""
    part, who, host = part_of(request, RunningCredentials), _user_of(request), request.state["host"]
    usable = [entry for entry in part.entries().values() if host.may_use(who, entry[0].kind, entry[0].key)]
    shown = [await _show(part, request, who, *entry) for entry in usable]
    return OrjsonResponse({"connections": shown}, 200, _NO_STORE)


@route("POST", "/v1/connections/{server}", CALL, "A link to sign in")
@answers(LinkAnswer, errors=(404, 409))
async def make_link(request: HostRequest) -> OrjsonResponse[LinkAnswer]:
    """Answer a link with which the caller signs in, also if it is connected. Raises `ApiError`."""
    part, owner, auth = _entry(request)
    if not request.state["host"].may_use(request.state["principal"], owner.kind, owner.key):
        raise _not_found()
    base = part.base_of(passed_credentials(request.state["headers"]))
    if auth.oauth is None:
        brings = (
            f"send the credential as the header {HEADER}{auth.given_name}" if auth.given_name else "call with a JWT"
        )
        raise ApiError("no_link", f"nobody signs in to {owner.key} by a link; {brings}")
    if not base:
        raise ApiError("no_link", "the host has no http.public_url for the link; have it set")
    link = await tokens_of(part).oauth.sign_ins.link(owner, request.state["principal"], base)
    answer: LinkAnswer = {"url": link.url, "server": owner.key, "expires_at": timestamp(link.expires_at)}
    return OrjsonResponse(answer, 200, _NO_STORE)


@route("DELETE", "/v1/connections/{server}", CALL, "Disconnect", parameters=(_CALLER, TENANT))
@answers(DisconnectedAnswer, errors=(404,))
async def disconnect(request: HostRequest) -> OrjsonResponse[DisconnectedAnswer]:
    """Forget the tokens, and have the issuer end them. Raises `HttpProblem` and `ApiError`."""
    who, (part, owner, auth) = _user_of(request), _entry(request)
    existed, revoked = await tokens_of(part).disconnect(owner, auth, who)
    if not existed:
        if not request.state["host"].may_use(who, owner.kind, owner.key):
            raise _not_found()
        raise ApiError("connection_not_found", f"this caller is not connected to {owner.key}")
    return OrjsonResponse({"server": owner.key, "connected": False, "revoked": revoked}, 200, _NO_STORE)


ROUTES = (list_connections, make_link, disconnect)
