"""The Host header: the bound address, `localhost`, and what the operator allows. Keeps rebound names out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from starlette.types import Scope

from toolplug.http.problem import HttpProblem

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+)(?::[0-9]{1,5})?")

LOCAL = "localhost"


class HostDoor:
    """Lets requests in that name a host of ours; the port does not matter, since proxies change it.

    What was let in last is let in again without being read: clients do not change the name that they use.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        names = (host_name(entry) or entry.lower() for entry in allowed)
        self._allowed = frozenset({LOCAL, *names})
        self._last: tuple[bytes, object] = (b"", None)

    def check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HttpProblem` for a Host header that is missing, doubled, malformed or not ours."""
        found = headers.get(b"host")
        if found is None or (len(headers) < len(scope["headers"]) and _doubled(scope)):
            raise _misdirected("the request must have exactly one Host header")
        bound = scope.get("server")
        if (found, bound) != self._last:
            self._check_name(host_name(found.decode("latin-1")), bound)
            self._last = (found, bound)

    def _check_name(self, name: str | None, bound: tuple[str, int | None] | None) -> None:
        if name is None:
            raise _misdirected("the Host header is no host name with an optional port")
        if name not in self._allowed and (bound is None or name != bound[0].lower()):
            raise _misdirected("this server is not known by the name in the Host header")


def host_name(header: str) -> str | None:
    """The host in lower case, without port and brackets; None where it is none."""
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else None


def _doubled(scope: Scope) -> bool:
    return sum(name == b"host" for name, _ in scope["headers"]) > 1


def _misdirected(what: str) -> HttpProblem:
    message = f"{what}; use the bound address or localhost, or list the name under http.allowed_hosts"
    return HttpProblem(421, "host_not_allowed", message, param="Host")
