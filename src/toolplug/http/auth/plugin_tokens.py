"""The tokens of plugins: each opens one session's own routes, and nothing else (CONTRACT.md section 6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from toolplug.catalog.call import Principal
from toolplug.errors import SessionGone, SessionNotFound
from toolplug.host.file.settings import Auth, Jwt
from toolplug.http.auth.chain import (
    ANYBODY,
    AllowAll,
    ApiKeys,
    Authenticator,
    AuthFunction,
    Chain,
    DenyAll,
    authentication_required,
    credential,
)
from toolplug.http.errors import HttpProblem
from toolplug.sessions.record import check_code, code_of_token, is_plugin_token
from toolplug.sessions.service import Sessions
from toolplug.sessions.session import Session

_LOG = logging.getLogger("toolplug.http")

_TOKENS = "toolplug.http.auth.jwt"


def configured_authenticator(auth: Auth | None, given: Sequence[AuthFunction]) -> Authenticator:
    """API keys, then tokens, then the functions given to `create_app`; without any of them, everyone is allowed.

    PyJWT is imported only where the section configures tokens. Where their key cannot be read, everyone is denied.
    """
    if auth is None:
        return Chain(ApiKeys(()), given) if given else AllowAll()
    try:
        tokens = () if auth.jwt is None else (_tokens(auth.jwt),)
    except ValueError as error:
        _LOG.error("%s; nobody is let in", error)
        return DenyAll()
    return Chain(ApiKeys(auth.api_keys), (*tokens, *given))


def _tokens(settings: Jwt) -> AuthFunction:
    make = cast("Callable[[Jwt], AuthFunction]", import_module(_TOKENS).Tokens)  # an extra is looked up by name
    return make(settings)


PLUGIN = "plugin"
"""Who acts where a plugin does."""


def plugin_token(headers: Headers) -> str | None:
    """The plugin token that the request carries, valid or not."""
    token = credential(headers)
    return token if token is not None and is_plugin_token(token) else None


async def session_of_token(sessions: Sessions, token: str, code: str) -> Session:
    """The session of this code, which the token opens.

    Raises 401 for every token but its own, whether there is such a session or not, `InvalidSessionCode` for a text
    that no session could have, `SessionGone` for one that is over, and `StoreError`.
    """
    own = code_of_token(token)
    if own is None:
        raise authentication_required()
    if own != code:
        await _opened(sessions, own, token)
        check_code(code)
        raise authentication_required()
    try:
        session = await sessions.with_token(code, token)
    except SessionNotFound:
        session = None
    if session is None:
        raise authentication_required()
    return session


class CallersOnly:
    """Refuses plugin tokens on routes that are for callers; everybody else is authenticated as configured."""

    def __init__(self, authenticator: Authenticator, sessions: Callable[[], Sessions]) -> None:
        self._authenticator = authenticator
        self._sessions = sessions

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """The caller. Raises `HttpProblem`: 403 for the token of a live session, 401 for any other."""
        token = plugin_token(connection.headers)
        if token is None:
            return await self._authenticator.authenticate(connection)
        await _opened(self._sessions(), code_of_token(token), token)
        raise _wrong_audience(
            "a plugin's token opens the routes of its own session only; use a key or token of a caller"
        )

    async def refused_as_plugin(self, connection: HTTPConnection[Any]) -> HttpProblem:
        """Why a request without a plugin's token may not do what only a plugin may."""
        principal = await self._authenticator.authenticate(connection)
        if principal is ANYBODY and credential(connection.headers) is None:
            return authentication_required()
        return _wrong_audience("this route is for the session's plugin; send the token that creating the session gave")


async def _opened(sessions: Sessions, code: str | None, token: str) -> None:
    """Raise 401 unless the token opens a live session."""
    try:
        session = None if code is None else await sessions.with_token(code, token)
    except (SessionNotFound, SessionGone):
        session = None
    if session is None:
        raise authentication_required()


def _wrong_audience(message: str) -> HttpProblem:
    return HttpProblem(403, "wrong_audience", message, param="Authorization")
