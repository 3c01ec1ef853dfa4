"""Refused requests: audited and counted, and a peer that guesses credentials is made to wait.

Only refusals come here, so that a valid credential never waits and costs nothing.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from time import monotonic

from starlette.types import Scope

from toolplug.catalog.call import Principal
from toolplug.execution.accounting import CallAccounting, audit, audit_origin
from toolplug.http.auth.authentication import UnverifiedCredential, credential
from toolplug.http.auth.peer import TrustedProxies, peer_of
from toolplug.http.errors import HttpProblem
from toolplug.http.requests import HostState

MAX_FAILURES = 10
"""Wrong credentials that a peer may send in `WINDOW_S`; then it waits for `BLOCKED_S`."""
WINDOW_S = 60.0
BLOCKED_S = 60.0
_MAX_PEERS = 10_000
"""Peers that are remembered, those that failed last: more addresses than that cost an attacker more than they give."""

_REFUSED = frozenset({401, 403, 413, 421, 431})
_REFUSED_CODES = frozenset({"auth_unavailable", "too_many_failures", "quota_exceeded"})
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
    """The refusals of one application, and the origins of its requests.

    `proxies` are those of the configuration as it is now; `counts_stored_bytes`: what providers' routes store counts
    for the caller.
    """

    def __init__(self) -> None:
        self.proxies: TrustedProxies = TrustedProxies()
        self.counts_stored_bytes: bool = False
        self._brake = CredentialBrake()

    def origin(self, scope: Scope) -> RequestOrigin:
        """Return where the request came from, for audit lines."""
        return RequestOrigin(scope, self.proxies)

    @contextmanager
    def within(self, scope: Scope) -> Generator[None]:
        """Within this scope, attribute audit lines and stored bytes to this request."""
        token = audit_origin.set(self.origin(scope))
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
            accounting.count_refusal(problem.code)
            if problem.code == "quota_exceeded" and problem.param is not None:
                accounting.quota_exceeded(problem.param)
            audit("http.request", problem.code, state["principal"], target, state["request_id"], self.origin(scope))
