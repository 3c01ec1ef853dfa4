"""The WebSocket through which a worker of an entry with `run: {worker: true}` dials in (docs/how-to/run-workers.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.types import Receive, Scope, Send

from toolplug.apart.limits import WORKERS_PATH
from toolplug.apart.workers.link import WorkerLink
from toolplug.apart.workers.provider import DialledProvider
from toolplug.catalog.call import WORKER, Principal
from toolplug.config.nearest import name_hint
from toolplug.host.host import Host
from toolplug.http.auth.authentication import insufficient_scope
from toolplug.http.errors import HttpProblem


def check_browser(scope: Scope) -> None:
    """Raise `HttpProblem` for a web page: browsers let each of them open a WebSocket, with nothing to be asked for."""
    if b"origin" in scope["state"]["headers"]:
        message = "a web page cannot be a worker; toolplug worker dials in"
        raise HttpProblem(403, "origin_not_allowed", message, param="Origin")


def dialled_provider(host: Host, path: str, principal: Principal) -> DialledProvider:
    """Return the provider that a worker at this path serves. Raises `HttpProblem`."""
    if not principal.has_scope(WORKER):
        raise insufficient_scope(WORKER)
    key = path.removeprefix(WORKERS_PATH)
    running = host.registry.running() if path.startswith(WORKERS_PATH) else {}
    dialled = {
        name: each.provider
        for name, each in running.items()
        if isinstance(each.provider, DialledProvider) and each.provider.dials_in
    }
    provider = dialled.get(key)
    if provider is None:
        hint = name_hint(key, dialled) or "its entry needs run: {worker: true}"
        raise HttpProblem(404, "provider_not_found", f"no running provider {key!r} waits for workers; {hint}")
    return provider


async def serve_worker(
    provider: DialledProvider, receive: Receive, send: Send, processes: Callable[[], Sequence[str]]
) -> None:
    """Accept a worker, and serve with it until it is gone.

    `processes` returns the names of those that share the store of the host, this one first: the worker dials until each
    of them has it.
    """
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    link = WorkerLink(receive, send, lambda: {"processes": [*processes()]})
    await provider.serve(link, processes()[0])
    await send({"type": "websocket.close", "code": 1000})
