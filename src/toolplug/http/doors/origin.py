"""The Origin header: a page of another site may call only where the operator lists it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolplug.http.problem import HttpProblem


class OriginDoor:
    """Lets in requests without an origin, from a page of this server itself, and from listed origins."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HttpProblem` for a foreign origin."""
        given = headers.get(b"origin")
        if given is None:
            return
        origin = given.decode("latin-1").lower()
        host = headers[b"host"].decode("latin-1").lower()
        if origin in {f"http://{host}", f"https://{host}"} or origin in self._allowed:
            return
        message = "pages of this origin may not call; list it under http.allowed_origins"
        raise HttpProblem(403, "origin_not_allowed", message, param="Origin")
