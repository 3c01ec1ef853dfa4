"""Keeps the host's list of tools equal to that of the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from toolplug.client.backoff import Backoff
from toolplug.client.session_requests import Definitions, RegistrationInfo, SessionRequests, difference
from toolplug.client.tool import Definition, Tool
from toolplug.errors import HostError, HostRefused, SessionOver

_LOG = logging.getLogger("toolplug.client")

MAX_REASON = 1_000
"""Characters that a host accepts."""

_STALE = frozenset({"revision_mismatch", "not_registered", "tool_exists", "tool_not_found"})
"""Refusals where the host's tools are not those that this client assumes."""
_UNKNOWN = "unknown"
_UNFIT = frozenset({"invalid_tool"})
"""Refusals of a whole update for one tool; a registration takes the other tools and names the refused ones."""


class ToolSync:
    """Sends changes of `tools`, the application's own mapping, after each call of `schedule_update`.

    Changes within `gather_s` of the backoff are one update. It contains only the difference from the host's tools;
    without one, nothing is sent.
    """

    def __init__(
        self, session: SessionRequests, registration: RegistrationInfo, tools: Mapping[str, Tool], backoff: Backoff
    ) -> None:
        self._session = session
        self._registration = registration
        self._tools = tools
        self._backoff = backoff
        self._has: Definitions | None = None
        self._revision = 0
        self._refused: dict[str, tuple[Definition, str]] = {}
        self._reasons: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._settled: asyncio.Future[None] | None = None
        self._over: HostError | None = None

    @property
    def refusals(self) -> dict[str, str]:
        """The tools that the host has refused, each with the reason."""
        return {name: self._refused[name][1] for name, tool in self._tools.items() if self._is_refused(tool)}

    async def begin(self, *, joins: bool) -> None:
        """Send all tools; with `joins`, only the difference from the host's tools. Raises `HostError`."""
        if joins:
            await self._read()
        await self._push()

    def schedule_update(self, reason: str) -> None:
        """Schedule an update for this reason; the tools have changed."""
        self._reasons[reason] = None
        if self._settled is None and self._over is None:
            self._settled = asyncio.get_running_loop().create_future()
        self._changed.set()

    async def wait_until_sent(self) -> None:
        """Wait until the host has all changes so far. Raises `HostRefused` if it refuses them."""
        if self._over is not None:
            raise self._over
        if self._settled is not None:
            await asyncio.shield(self._settled)

    async def run(self) -> None:
        """Send changes until cancelled. Raises `SessionOver`."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._backoff.gather_s)
            self._changed.clear()
            error = await self._push_with_retries()
            if not self._changed.is_set():
                self._end_wait(error)

    def end(self, over: HostError) -> None:
        """Stop sending; `settled` raises this error from then on."""
        self._over = over
        self._end_wait(over)

    async def _push_with_retries(self) -> HostRefused | None:
        try:
            await self._backoff.retry(self._push)
        except SessionOver:
            raise
        except HostRefused as refusal:
            _LOG.error("the host refuses a change of the tools: %s: %s", refusal.code, refusal)
            return refusal
        return None

    def _end_wait(self, error: HostError | None) -> None:
        settled, self._settled = self._settled, None
        if settled is None:
            return
        if error is None:
            settled.set_result(None)
        else:
            settled.set_exception(error)
            settled.exception()  # marks it as retrieved: nothing has to wait for it

    async def _push(self) -> None:
        """Send the difference; read the host's tools again if they are stale, and register all if that fails."""
        refusal = await self._update()
        if refusal in _STALE:
            await self._read()
            refusal = await self._update()
        if refusal is not None:
            await self._register()

    async def _update(self) -> str | None:
        """Send the difference; return the code of a refusal that `_push` can work around, else None."""
        if self._has is None:
            return _UNKNOWN
        wanted = {name: tool.definition for name, tool in self._tools.items() if not self._is_refused(tool)}
        changes = difference(self._has, wanted)
        reasons = tuple(self._reasons)
        if changes:
            try:
                updated = await self._session.update(changes, "; ".join(reasons)[:MAX_REASON], self._revision)
            except HostRefused as error:
                if error.code in _STALE | _UNFIT:
                    return error.code
                raise
            self._has, self._revision = wanted, updated.revision
        self._finish(reasons)
        return None

    async def _register(self) -> None:
        wanted = {name: tool.definition for name, tool in self._tools.items()}
        reasons = tuple(self._reasons)
        answer = await self._session.register(self._registration, list(wanted.values()))
        failed = {tool.tool_name: tool.error for tool in answer.failed_tools if tool.tool_name in wanted}
        for name, error in failed.items():
            _LOG.error("the host does not take the tool %r: %s", name, error)
        self._refused = {name: (wanted[name], error) for name, error in failed.items()}
        self._has = {name: definition for name, definition in wanted.items() if name not in failed}
        self._revision = answer.revision
        self._finish(reasons)

    async def _read(self) -> None:
        """Read the host's tools; treat them as none if another application has registered."""
        found = await self._session.metadata()
        info = {"pluginType": found.plugin_type, "capabilities": found.capabilities, "environment": found.environment}
        known = found.registered and info == self._registration.wire()
        self._has = {tool.name: tool.definition() for tool in found.tools} if known else None
        self._revision = found.revision

    def _is_refused(self, tool: Tool) -> bool:
        refused = self._refused.get(tool.name)
        return refused is not None and refused[0] is tool.definition

    def _finish(self, reasons: tuple[str, ...]) -> None:
        for reason in reasons:
            del self._reasons[reason]
