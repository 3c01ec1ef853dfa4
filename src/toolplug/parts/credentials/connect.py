"""The pages of a sign-in: who is to be connected where, which a person presses, and what has come of it.

GET shows and changes nothing, since programs open links to preview them.
"""

from __future__ import annotations

import re
import secrets
from html import escape
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

from toolplug.errors import ToolUnavailable
from toolplug.execution.user_auth import UserOAuth
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest, base_url, part_of, query_fields
from toolplug.http.routing import answers, route
from toolplug.parts.credentials.oauth import issuers_module
from toolplug.parts.credentials.running import RunningCredentials
from toolplug.parts.credentials.service import tokens_of
from toolplug.parts.credentials.sign_ins import AskedSignIn

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


ROUTES = (describe_client, finish_sign_in, show_sign_in, begin_sign_in)
