"""What callers see of their connections, how they make and end them, and the pages of a sign-in.

The pages say who is to be connected where, which a person presses, and what has come of it. GET shows and changes
nothing, since programs open links to preview them.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from html import escape
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field
from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

from toolplug.catalog.call import ADMIN, Principal
from toolplug.catalog.exact_json import Answer
from toolplug.config.units import timestamp
from toolplug.errors import ApiError, ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, UserAuth, UserOAuth
from toolplug.http.auth.authentication import insufficient_scope, viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, base_url, part_of, passed_credentials, query_fields
from toolplug.http.routing import CALL, TENANT, Parameter, answers, route
from toolplug.parts.credentials.oauth import issuers_module
from toolplug.parts.credentials.records import AskedSignIn, user_key
from toolplug.parts.credentials.running import HEADER, RunningCredentials
from toolplug.parts.credentials.service import tokens_of

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


COOKIE = "toolplug_connect"
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}")
_ERROR = re.compile(r"[a-z_]{1,40}")
_COOKIE_S = 600

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    # Not no-referrer: a browser then sends its form with `Origin: null`, which the host refuses.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem }}
dt {{ opacity: .7 }}
dd {{ margin: 0 0 .6rem }}
button {{ font: inherit; padding: .4rem 1.2rem }}
</style>
<h1>{title}</h1>
{body}
</html>
"""
_GONE = "This link has been used or is older than ten minutes. Make the call again for another one."


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, _HEADERS)


def _message_page(title: str, text: str, status: int = 200) -> HTMLResponse:
    return _page(title, f"<p>{escape(text)}</p>", status)


def _oauth_of(part: RunningCredentials, asked: AskedSignIn) -> UserOAuth | None:
    """Return how the entry of a link signs in; None if it is gone, or is another server by now."""
    owner, auth = part.entries().get(asked.key, (None, None))
    return auth.oauth if auth is not None and owner == asked.owner else None


class ClientMetadata(TypedDict):
    """The host as issuers know it (RFC 7591, and the draft of documents whose URL is the client's id)."""

    client_id: str
    client_name: str
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: str
    application_type: str


@route("GET", "/connect/client.json", None, "The host as a client of issuers")
@answers(ClientMetadata)
async def describe_client(request: HostRequest) -> OrjsonResponse[ClientMetadata]:
    """Answer the metadata document whose URL is the host's client id."""
    issuers, base = await issuers_module(), base_url(request)
    document: ClientMetadata = issuers.document_of(f"{base}/connect/client.json", f"{base}/connect/callback")
    return OrjsonResponse(document)


@route("GET", "/connect/callback", None, "The answer of an issuer")
@answers(content_types=("text/html",), others={303: None, 400: None, 410: None, 502: None})
async def finish_sign_in(request: HostRequest) -> Response:
    """Keep the tokens for the code, if this browser has asked for it, and say so.

    A browser that has signed in to the host as the caller is sent on to the issuer of the server.
    """
    part, fields = part_of(request, RunningCredentials), query_fields(request)
    browser = request.cookies.get(COOKIE, "")
    begun = await tokens_of(part).oauth.sign_ins.take_state(fields.get("state", ""), browser)
    if begun is None:
        return _message_page(
            "Not connected", f"{_GONE} It has to be opened in the browser in which it was pressed.", 410
        )
    server, issuers = begun.asked.key, await issuers_module()
    oauth = _oauth_of(part, begun.asked)
    if oauth is None:
        return _message_page("Not connected", f"{server} is no longer configured.", 410)
    if "code" not in fields or "error" in fields:
        error = fields.get("error", "")
        why = error if _ERROR.fullmatch(error) else "no code"
        return _message_page("Not connected", f"The issuer of {server} answers: {why}.", 400)
    try:
        if begun.nonce:
            await tokens_of(part).login.check(begun, fields["code"], fields.get("iss"))
            return RedirectResponse(await tokens_of(part).oauth.begin(begun.asked, oauth, browser), 303, _HEADERS)
        await tokens_of(part).oauth.finish(begun, oauth, fields["code"], fields.get("iss"))
    except (issuers.SignInFailed, ToolUnavailable) as error:
        return _message_page("Not connected", f"{server}: {error}", 502)
    who = begun.asked.principal
    return _message_page(
        "Connected", f"{who.subject} is connected to {server}. Close this page, and make the call again."
    )


@route("GET", "/connect/{state}", None, "Who is to be connected where")
@answers(content_types=("text/html",), others={410: None})
async def show_sign_in(request: HostRequest) -> Response:
    """Show what the link is for, with a button."""
    part = part_of(request, RunningCredentials)
    asked = await tokens_of(part).oauth.sign_ins.find_link(request.path_params["state"])
    oauth = None if asked is None else _oauth_of(part, asked)
    if asked is None or oauth is None:
        return _message_page("No such link", _GONE, 410)
    shown = {
        "Server": asked.key,
        "User": asked.subject,
        "Tenant": asked.tenant,
        "Scopes": " ".join(oauth.scopes) or "those that the server asks for",
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in shown.items())
    body = (
        f"<p>Calls of this user will act as you at {escape(asked.key)}. Continue only if that is you, and if you have"
        f' just asked for it.</p><dl>{rows}</dl><form method="post"><button>Continue</button></form>'
    )
    return _page(f"Connect to {asked.key}", body)


@route("POST", "/connect/{state}", None, "Go to the issuer")
@answers(content_types=("text/html",), others={303: None, 410: None, 502: None})
async def begin_sign_in(request: HostRequest) -> Response:
    """Use the link up, bind it to this browser, and send that to the issuer."""
    part = part_of(request, RunningCredentials)
    asked = await tokens_of(part).oauth.sign_ins.press(request.path_params["state"])
    oauth = None if asked is None else _oauth_of(part, asked)
    if asked is None or oauth is None:
        return _message_page("No such link", _GONE, 410)
    issuers, known = await issuers_module(), request.cookies.get(COOKIE, "")
    # The same one for all tabs of a browser, which may sign in to several servers at once.
    browser = known if _COOKIE_VALUE.fullmatch(known) else secrets.token_urlsafe(32)
    try:
        url = await tokens_of(part).begin(asked, oauth, browser)
    except (issuers.SignInFailed, ToolUnavailable) as error:
        return _message_page("Not connected", f"{asked.key}: {error}", 502)
    answer = RedirectResponse(url, 303, headers=_HEADERS)
    path = f"{urlsplit(asked.base).path}/connect"
    secure = asked.base.startswith("https://")
    answer.set_cookie(COOKIE, browser, _COOKIE_S, path=path, secure=secure, httponly=True, samesite="lax")
    return answer


ROUTES = (
    list_connections,
    make_link,
    disconnect,
    describe_client,
    finish_sign_in,
    show_sign_in,
    begin_sign_in,
)
