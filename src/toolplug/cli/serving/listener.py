"""The socket that `serve` listens on."""

from __future__ import annotations

import socket

from toolplug.errors import ConfigError, Problem
from toolplug.http.doors.loopback import is_loopback

_LOCAL = "localhost"


def check_reach(address: str, *, has_auth: bool, insecure_no_auth: bool) -> None:
    """Raise `ConfigError` where everybody who can reach the address could call every tool."""
    if has_auth or insecure_no_auth or address == _LOCAL or is_loopback(address):
        return
    message = f"{address!r} is reachable from other machines, and the configuration has no auth"
    hint = "add auth (toolplug keys new makes a key), or say --insecure-no-auth"
    raise ConfigError([Problem(code="auth_required", message=message, path="auth", hint=hint)])


def bound(address: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet. Raises `ConfigError`."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refused(address, port, error) from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
    except OSError as error:
        made.close()
        raise _refused(address, port, error) from None
    return made


def port_of(listening: socket.socket) -> int:
    """The port of a bound socket."""
    port: int = listening.getsockname()[1]
    return port


def url_of(listening: socket.socket) -> str:
    """The address of a bound socket as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refused(address: str, port: int, error: OSError) -> ConfigError:
    message = f"cannot listen on {address} port {port}: {error.strerror or error}"
    hint = "give another --host or --port; --port 0 takes a free one"
    return ConfigError([Problem(code="cannot_listen", message=message, hint=hint)])
