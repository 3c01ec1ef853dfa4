"""Refused requests: audited and counted, and a peer that guesses credentials is made to wait.

Only refusals come here, so that a valid credential never waits and costs nothing.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from starlette.types import Scope

from toolplug.execution.accounting import CallAccounting, audit, audit_origin
from toolplug.http.auth.authentication import RequestOrigin, UnverifiedCredential, credential
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
