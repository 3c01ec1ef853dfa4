"""The socket of `toolplug serve`: who may reach it, and which port it is bound to."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

from toolplug.errors import ConfigError, Problem
from toolplug.http.request_checks import is_loopback
from toolplug.runtime.threads import in_own_thread


def check_reach(address: str, *, has_auth: bool, insecure_no_auth: bool, user_auth: Sequence[str] = ()) -> None:
    """Raise `ConfigError` if anyone on the network could call every tool.

    `user_auth` are the entries that have one: without `auth` anyone there would act as the one user.
    """
    if has_auth or is_local(address):
        return
    if user_auth:
        message = f"{user_auth[0]!r} has user_auth, and without auth everyone at {address!r} is one and the same user"
        hint = "add auth (toolplug keys new makes a key), or listen on 127.0.0.1"
        raise ConfigError([Problem(code="auth_required", message=message, path="auth", hint=hint)])
    if insecure_no_auth:
        return
    message = f"{address!r} is reachable from other machines, and the configuration has no auth"
    hint = "add auth (toolplug keys new makes a key), or say --insecure-no-auth"
    raise ConfigError([Problem(code="auth_required", message=message, path="auth", hint=hint)])


def is_local(address: str) -> bool:
    """Return whether only this machine reaches the address."""
    return address == "localhost" or is_loopback(address)


@contextmanager
def page_opener(url: str) -> Generator[Callable[[], Awaitable[object]]]:
    """Return what opens a page in the user's browser.

    The browser gets the name of a file that leads to the page: the key in the address must not stand in the command
    line of a process, which every user of the machine can read.
    """
    with tempfile.TemporaryDirectory(prefix="toolplug-") as folder:
        page = Path(folder, "console.html")
        page.touch(0o600)
        target: str = import_module("html").escape(url)
        page.write_text(
            f'<!DOCTYPE html><meta charset="utf-8"><title>toolplug</title>'
            f'<meta http-equiv="refresh" content="0;url={target}"><a href="{target}">Open the console</a>\n',
            "utf-8",
            newline="\n",
        )
        yield partial(in_own_thread, partial(import_module("webbrowser").open, page.as_uri()))


def bind(address: str, port: int, *, joins: bool = False) -> socket.socket:
    """Return a bound socket that does not listen yet. Raises `ConfigError`.

    `joins`: other processes of this user may listen on the same port, and share its connections.
    """
    try:
        # As bytes where it can be: for a text Python loads its tables of international names, which takes 0.2 MB.
        named = address.encode() if address.isascii() else address
        family, kind, protocol, _, where = socket.getaddrinfo(named, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _bind_error(address, port, error) from None
    try:
        # Workers need both: without SO_REUSEADDR their connections that are still closing keep the port from the next
        # server for a minute.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if joins:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(where)
    except OSError as error:
        listening.close()
        raise _bind_error(address, port, error) from None
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address of a bound socket as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bind_error(address: str, port: int, error: OSError) -> ConfigError:
    message = f"cannot listen on {address} port {port}: {error.strerror or error}"
    hint = "give another --host or --port; --port 0 takes a free one"
    return ConfigError([Problem(code="cannot_listen", message=message, hint=hint)])
