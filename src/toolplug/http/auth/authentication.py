"""Authentication: API keys, JSON Web Tokens, functions of the application, plugin tokens (docs/reference/http.md).

Refused requests are audited and counted, and a peer that guesses credentials is made to wait. Only refusals come to
that, so that a valid credential never waits and costs nothing.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from hmac import compare_digest
from importlib import import_module
from time import monotonic
from types import MappingProxyType
from typing import Any, Protocol, cast

from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from toolplug.catalog.call import OPERATOR, Principal, check_code
from toolplug.catalog.text import is_identity
from toolplug.errors import SessionGone, SessionNotFound
from toolplug.execution.accounting import CallAccounting, audit, audit_origin
from toolplug.host.file.settings import ApiKey, Auth, Jwt
from toolplug.http.auth.peer import TrustedProxies, peer_of
from toolplug.http.errors import HttpProblem, invalid_request
from toolplug.http.requests import HostState, query_fields
from toolplug.http.routing import EVERY_SCOPE, HostRoute
from toolplug.part_protocols.host_part import HostSession, HostSessions
from toolplug.stores.store import name_digest

_SCHEME = b"bearer "

Headers = Mapping[bytes, bytes]
"""A request's headers by lower-case name, the last of each."""


def bearer(headers: Headers) -> bytes | None:
    """Return the token of `Authorization: Bearer`; None without one."""
    value = headers.get(b"authorization")
    if value is None or value[:7].lower() != _SCHEME:
        return None
    return value[7:].strip(b" \t") or None


def credential(headers: Headers) -> bytes | None:
    """Return the bearer token, else the value of `X-API-Key`; None without either."""
    return bearer(headers) or headers.get(b"x-api-key")


_FINGERPRINT = 16


class RequestOrigin:
    """Where a request came from, as audit lines show it; computed only when one is written."""

    __slots__ = ("_proxies", "_scope")

    def __init__(self, scope: Scope, proxies: TrustedProxies) -> None:
        self._scope = scope
        self._proxies = proxies

    @property
    def principal(self) -> Principal:
        """The caller; `ANONYMOUS` until it has been authenticated."""
        return self._scope["state"]["principal"]

    @property
    def peer(self) -> str:
        """The address of the peer, behind trusted proxies that of the client."""
        return peer_of(self._scope, self._proxies)

    @property
    def credential(self) -> str:
        """The first 16 hex digits of the credential's SHA-256, as `toolplug keys new` shows it; empty without one."""
        found = credential(dict(self._scope["headers"]))
        return "" if found is None else sha256(found).hexdigest()[:_FINGERPRINT]


def _headers(connection: HTTPConnection[Any]) -> Headers:
    state: HostState = connection.scope["state"]
    return state["headers"]


AuthFunction = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""Authenticates a request: `async (connection) -> Principal | None`.

None abstains, so that the next function is called; `starlette.authentication.AuthenticationError` rejects the
credentials. Any other exception means that they cannot be checked now: the request is refused with 503.
"""

Authentication = AuthFunction | AuthenticationBackend


def as_auth_function(given: Authentication) -> AuthFunction:
    """Return the function itself, or one that calls the backend.

    Of a backend's user, `identity` is the subject; `tenant` and `agents` count where the user has them.
    """
    return _from_backend(given) if isinstance(given, AuthenticationBackend) else given


def credential_digest(*parts: str) -> str:
    """Return the digest by which `Principal.credential` tells a credential from others."""
    return name_digest(*parts)[:32]


def _principal(
    subject: str, tenant: str, scopes: Iterable[str], agents: Iterable[str] | None, credential: str = ""
) -> Principal:
    return Principal(subject, tenant, frozenset(scopes), None if agents is None else frozenset(agents), credential)


def _from_backend(backend: AuthenticationBackend) -> AuthFunction:
    async def authenticate(connection: HTTPConnection) -> Principal | None:
        found = await backend.authenticate(connection)
        if found is None:
            return None
        credentials, user = found
        if not user.is_authenticated:
            return None
        tenant, agents = getattr(user, "tenant", "default"), cast("Iterable[str] | None", getattr(user, "agents", None))
        return _principal(user.identity, tenant, credentials.scopes, agents)

    return authenticate


class ApiKeys:
    """The keys of the configuration and their holders."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._holders = tuple((key.digest, _holder(key)) for key in keys)

    def holder(self, headers: Headers) -> Principal | None:
        """Return the holder of the request's key; None for no key and for an unknown one."""
        return self._find(bearer(headers)) or self._find(headers.get(b"x-api-key"))

    def _find(self, key: bytes | None) -> Principal | None:
        """Return the key's holder; every key is compared, so that the time does not depend on the match."""
        if key is None:
            return None
        digest = sha256(key).digest()
        found = None
        for known, principal in self._holders:
            if compare_digest(known, digest):
                found = principal
        return found


def _holder(key: ApiKey) -> Principal:
    credential = credential_digest("key", key.digest.hex())
    return _principal(key.subject, key.tenant, key.scopes, key.agents, credential)


_LOG = logging.getLogger("toolplug.http")

ANYBODY = Principal(scopes=EVERY_SCOPE)
"""The caller of a host without `auth`."""


class Authenticator(Protocol):
    """Authenticates requests."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Return the caller. Raises `HttpProblem` without valid credentials."""
        ...


class AllowAll:
    """Authenticates everyone: only loopback is served, or the operator allowed more."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Return the anonymous caller, with every scope."""
        return ANYBODY


class DenyAll:
    """Authenticates nobody: the configured authentication could not be set up."""

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Raise `HttpProblem` with status 503."""
        raise auth_unavailable()


class NotVerified(AuthenticationError):
    """The credential is neither valid nor wrong yet, as its key may be published a moment later."""


class UnverifiedCredential(HttpProblem):
    """The 401 for a credential that cannot be called wrong yet, so that the brake does not count it."""


class Chain:
    """Authenticates by API key, then by the other functions in their order.

    A principal of theirs whose tenant or subject people cannot tell from others is refused.
    """

    def __init__(self, keys: ApiKeys, others: Iterable[AuthFunction]) -> None:
        self._keys = keys
        self._others = tuple(others)

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Return the caller. Raises `HttpProblem`: 401 without valid credentials, 503 where they cannot be checked."""
        found = self._keys.holder(_headers(connection))
        if found is None and self._others:
            found = await self._ask_others(HTTPConnection(connection.scope))
        if found is None:
            raise authentication_required()
        return found

    async def _ask_others(self, connection: HTTPConnection) -> Principal | None:
        for authenticate in self._others:
            try:
                found = await authenticate(connection)
            except NotVerified:
                code = "authentication_required"
                raise UnverifiedCredential(401, code, _NO_CREDENTIALS, headers=_CHALLENGE) from None
            except AuthenticationError:
                return None
            except Exception as error:
                _LOG.error("an authenticator raised %s; the request is refused", type(error).__name__)
                raise auth_unavailable() from error
            if found is not None:
                return _identify(found)
        return None


def _identify(found: Principal) -> Principal | None:
    """Return the principal with a credential, by default that of its name; None if the name is invalid."""
    if not (is_identity(found.subject) and is_identity(found.tenant)):
        return None
    return found if found.credential else replace(found, credential=credential_digest(found.tenant, found.subject))


_NO_CREDENTIALS = "no valid credentials; send Authorization: Bearer KEY, or X-API-Key: KEY"
_CHALLENGE = MappingProxyType({"WWW-Authenticate": "Bearer"})


def authentication_required() -> HttpProblem:
    """Return the 401 for missing and for wrong credentials alike."""
    return HttpProblem(401, "authentication_required", _NO_CREDENTIALS, headers=_CHALLENGE)


def auth_unavailable() -> HttpProblem:
    """Return the 503 for credentials that cannot be checked now."""
    return HttpProblem(503, "auth_unavailable", "credentials cannot be checked now; try again in a moment")


def insufficient_scope(scope: str) -> HttpProblem:
    """Return the 403 for a known caller without this scope."""
    message = f"the credential lacks the scope {scope!r}; use one that has it, or have it added"
    return HttpProblem(403, "insufficient_scope", message, param=scope)


def viewer_of(request: Request[HostState]) -> Principal:
    """Return the caller, for `operator` as it would be in the tenant that the query names. Raises `HttpProblem`."""
    principal = request.state["principal"]
    tenant = query_fields(request).get("tenant") or principal.tenant
    if tenant == principal.tenant:
        return principal
    if not principal.has_scope(OPERATOR):
        raise insufficient_scope(OPERATOR)
    return replace(principal, tenant=tenant)


def check_tenant_fields(route: HostRoute, request: Request[HostState], principal: Principal) -> None:
    """Refuse a query that names tenants where the route takes none: it would be answered for the caller's own.

    Raises `HttpProblem`.
    """
    fields, known = query_fields(request), {parameter.name for parameter in route.parameters}
    for name in {"tenant", "tenants"} & fields.keys() - known:
        if fields[name] == principal.tenant:
            continue
        if not principal.has_scope(OPERATOR):
            raise insufficient_scope(OPERATOR)
        raise invalid_request(f"this route acts in the caller's own tenant only; leave {name!r} out", name)


_TOKENS = "toolplug.http.auth.jwt"


def import_token_checks(auth: Auth | None) -> None:
    """Import what checks tokens, if any are configured: a third of a second that the event loop should not spend."""
    if auth is not None and auth.jwt is not None:
        import_module(_TOKENS)


def configured_authenticator(auth: Auth | None, given: Sequence[AuthFunction]) -> Authenticator:
    """Return the chain of API keys, tokens and the functions given to `create_app`; without any, allow everyone.

    PyJWT is imported only where the section configures tokens. Where their key cannot be read, everyone is denied.
    """
    if auth is None:
        return Chain(ApiKeys(()), given) if given else AllowAll()
    try:
        tokens: tuple[AuthFunction, ...] = ()
        if auth.jwt is not None:  # PyJWT is an extra, so its module is looked up by name
            tokens = (cast("Callable[[Jwt], AuthFunction]", import_module(_TOKENS).Tokens)(auth.jwt),)
    except ValueError as error:
        _LOG.error("%s; all requests are refused", error)
        return DenyAll()
    return Chain(ApiKeys(auth.api_keys), (*tokens, *given))


PLUGIN = "plugin"
"""The subject of the principal that stands for a session's application."""


def plugin_token(headers: Headers, sessions: HostSessions) -> str | None:
    """Return the request's token of the application of a session, valid or not; None without one."""
    token = credential(headers)
    text = None if token is None else token.decode("latin-1")
    return text if text is not None and text.startswith(sessions.token_prefixes) else None


async def session_of_token(sessions: HostSessions, token: str, code: str) -> HostSession:
    """Return the session of this code, which the token opens.

    Raises 401 for every token but its own, whether there is such a session or not, `InvalidSessionCode` for a text
    that no session could have, `SessionGone` for one that is over, and `StoreError`.
    """
    own = sessions.code_of_token(token)
    if own is None:
        raise authentication_required()
    if own != code:
        await _check_opens(sessions, own, token)
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
    """Refuses plugin tokens on routes for callers; other requests are authenticated as configured."""

    def __init__(self, authenticator: Authenticator, sessions: Callable[[], HostSessions]) -> None:
        self._authenticator = authenticator
        self._sessions = sessions

    async def authenticate(self, connection: HTTPConnection[Any]) -> Principal:
        """Return the caller. Raises `HttpProblem`: 403 for the token of a live session, 401 for any other."""
        sessions = self._sessions()
        token = plugin_token(_headers(connection), sessions)
        if token is None:
            return await self._authenticator.authenticate(connection)
        await _check_opens(sessions, sessions.code_of_token(token), token)
        raise _wrong_audience(
            "a plugin's token opens the routes of its own session only; use a key or token of a caller"
        )

    async def refused_as_plugin(self, connection: HTTPConnection[Any]) -> HttpProblem:
        """Return the error of a request without a plugin token to a route for plugins only."""
        principal = await self._authenticator.authenticate(connection)
        if principal is ANYBODY and credential(_headers(connection)) is None:
            return authentication_required()
        return _wrong_audience("this route is for the session's plugin; send the token that creating the session gave")


async def _check_opens(sessions: HostSessions, code: str | None, token: str) -> None:
    """Raise 401 unless the token opens a live session."""
    try:
        session = None if code is None else await sessions.with_token(code, token)
    except (SessionNotFound, SessionGone):
        session = None
    if session is None:
        raise authentication_required()


def _wrong_audience(message: str) -> HttpProblem:
    return HttpProblem(403, "wrong_audience", message, param="Authorization")


MAX_FAILURES = 10
"""Wrong credentials that a peer may send in `WINDOW_S`; then it waits for `BLOCKED_S`."""
WINDOW_S = 60.0
BLOCKED_S = 60.0
_MAX_PEERS = 10_000
"""Peers that are remembered, those that failed last: more addresses than that cost an attacker more than they give."""

_REFUSED = frozenset({401, 403, 413, 421, 431})
_REFUSED_CODES = frozenset({"auth_unavailable", "too_many_failures", "quota_exceeded"})


class CredentialBrake:
    """Counts the wrong credentials of each peer. Lives as long as the application."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._blocked: OrderedDict[str, float] = OrderedDict()

    def count_failure(self, peer: str) -> float | None:
        """Count a wrong credential. Return the seconds that its peer must wait; None if it need not."""
        now = self._clock()
        until = self._blocked.get(peer, 0.0)
        if now < until:
            return until - now
        times = self._failed.setdefault(peer, deque())
        self._failed.move_to_end(peer)
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        times.append(now)
        if len(times) >= MAX_FAILURES:
            del self._failed[peer]
            self._blocked[peer] = now + BLOCKED_S
            self._blocked.move_to_end(peer)
        for kept in (self._failed, self._blocked):
            if len(kept) > _MAX_PEERS:
                kept.popitem(last=False)
        return None


class Refusals:
    """The refusals of one application.

    `proxies` are those of the configuration as it is now; `counts_stored_bytes`: what providers' routes store counts
    for the caller.
    """

    def __init__(self) -> None:
        self.proxies: TrustedProxies = TrustedProxies()
        self.counts_stored_bytes: bool = False
        self._brake = CredentialBrake()

    @contextmanager
    def within(self, scope: Scope) -> Generator[None]:
        """Within this scope, attribute audit lines and stored bytes to this request."""
        token = audit_origin.set(RequestOrigin(scope, self.proxies))
        try:
            yield
        finally:
            audit_origin.reset(token)

    def apply_brake(self, scope: Scope, problem: HttpProblem) -> HttpProblem:
        """Return the problem to send: 429 instead of 401 for a peer that sent too many wrong credentials.

        A missing credential is none: it is answered with 401 always, which says what to send. So is one that cannot be
        called wrong yet.
        """
        counts = problem.code == "authentication_required" and not isinstance(problem, UnverifiedCredential)
        if not counts or credential(dict(scope["headers"])) is None:
            return problem
        wait_s = self._brake.count_failure(peer_of(scope, self.proxies))
        if wait_s is None:
            return problem
        message = f"{MAX_FAILURES} wrong credentials came from this address; a valid one is accepted at any time"
        return HttpProblem(429, "too_many_failures", message, headers={"Retry-After": str(math.ceil(wait_s))})

    def note(
        self, accounting: CallAccounting, scope: Scope, state: HostState, problem: HttpProblem, target: str
    ) -> None:
        """Audit and count the problem if it is a refusal; `target` is a route as declared, never the path as sent."""
        if problem.status in _REFUSED or problem.code in _REFUSED_CODES:
            accounting.refusals[problem.code] += 1
            if problem.code == "quota_exceeded" and problem.param is not None:
                accounting.quotas[problem.param] += 1
            audit(
                "http.request",
                problem.code,
                state["principal"],
                target,
                state["request_id"],
                RequestOrigin(scope, self.proxies),
            )
