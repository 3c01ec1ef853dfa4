"""All doors in their order, made for one reading of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolplug.host.file.settings import HostSettings
from toolplug.http.auth.authenticator import Authenticator
from toolplug.http.auth.configured import configured_gatekeeper
from toolplug.http.auth.plugin_tokens import CallersOnly
from toolplug.http.doors.cors import SHARED, sharing_headers
from toolplug.http.doors.header_limits import check_headers
from toolplug.http.doors.host_header import HostDoor
from toolplug.http.doors.loopback import check_loopback
from toolplug.http.doors.origin import OriginDoor
from toolplug.http.exchange import Exchange
from toolplug.sessions.service import Sessions


class Entrance:
    """What a request passes before its route is looked at, and the gatekeeper that its route asks.

    Host, header limits, Origin, loopback: in this order, so that what a stranger can make us do is least. `open`:
    nobody is asked who they are.
    """

    def __init__(
        self,
        settings: HostSettings,
        sessions: Callable[[], Sessions],
        *,
        insecure_no_auth: bool,
        authenticators: Sequence[Authenticator],
    ) -> None:
        self.settings = settings
        self.max_body: int = settings.http.max_body
        self._hosts = HostDoor(settings.http.allowed_hosts)
        self._origins = OriginDoor(settings.http.allowed_origins)
        self.open: bool = settings.auth is None and not authenticators
        self._loopback_only = self.open and not insecure_no_auth
        self.gatekeeper: CallersOnly = CallersOnly(configured_gatekeeper(settings.auth, authenticators), sessions)

    def check(self, exchange: Exchange) -> None:
        """Raise `HttpProblem` where a door is closed for this request."""
        scope, headers = exchange.scope, exchange.headers
        self._hosts.check(scope, headers)
        check_headers(scope["headers"], headers)
        self._origins.check(headers)
        if exchange.path.startswith(SHARED):
            exchange.standing += sharing_headers(headers)
        if self._loopback_only:
            check_loopback(scope)
