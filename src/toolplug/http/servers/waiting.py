"""How long a request waits for a discovery: `wait=true`, or seconds, or a duration."""

from __future__ import annotations

from toolplug.config.units import parse_duration
from toolplug.http.exchange import Exchange
from toolplug.http.problem import invalid_request

LONGEST_WAIT_S = 60.0

_WORDS = {"true": LONGEST_WAIT_S, "": LONGEST_WAIT_S, "false": 0.0}


def wanted_wait_s(exchange: Exchange) -> float:
    """The seconds that the client wants to wait; 0 where it does not. Raises `HttpProblem`."""
    given = exchange.query().get("wait", "false")
    if given in _WORDS:
        return _WORDS[given]
    try:
        wait_s = parse_duration(given)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= LONGEST_WAIT_S:
        message = f"'wait' should be true, or a duration such as 20s of at most {LONGEST_WAIT_S:g} s"
        raise invalid_request(message, "wait")
    return wait_s
