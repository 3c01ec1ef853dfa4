"""Requests that were refused: one audit line and one count each, so that the two agree."""

from __future__ import annotations

from toolplug.execution.audit import audit
from toolplug.execution.ledger import Ledger
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem

_REFUSED = frozenset({401, 403, 413, 421, 431})
_UNDECIDED = "auth_unavailable"


def note_refusal(ledger: Ledger, exchange: Exchange, problem: HttpProblem, target: str) -> None:
    """Audit and count the problem if it is a refusal; `target` is a route as declared, never the path as sent."""
    if problem.status in _REFUSED or problem.code == _UNDECIDED:
        ledger.refused(problem.code)
        audit("http.request", problem.code, exchange.principal, target, exchange.request_id)
