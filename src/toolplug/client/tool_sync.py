"""Keeps the tools that the host has equal to those that the application lends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from toolplug.client.backoff import Pace
from toolplug.client.session_requests import Definitions, Introduction, SessionRequests, difference
from toolplug.client.tool import Definition, Tool
from toolplug.errors import HostError, HostRefused, SessionOver

_LOG = logging.getLogger("toolplug.client")

MAX_REASON = 1_000
"""Characters that a host takes."""

_STALE = frozenset({"revision_mismatch", "not_registered", "tool_exists", "tool_not_found"})
"""The host has other tools than this client believes."""
_UNKNOWN = "unknown"
_UNFIT = frozenset({"invalid_tool"})
"""An update is all or nothing; a registration takes the rest and names what it does not take."""


class Lending:
    """`tools` is what the application lends now; whoever changes it says so with `changed`.

    Several changes at once are one update, with only what differs from what the host has; none where nothing does.
    """

    def __init__(
        self, session: SessionRequests, introduction: Introduction, tools: Mapping[str, Tool], pace: Pace
    ) -> None:
        self._session = session
        self._introduction = introduction
        self._tools = tools
        self._pace = pace
        self._has: Definitions | None = None
        self._revision = 0
        self._refused: dict[str, tuple[Definition, str]] = {}
        self._reasons: dict[str, None] = {}
        self._news = asyncio.Event()
        self._settled: asyncio.Future[None] | None = None
        self._over: HostError | None = None

    @property
    def refused(self) -> dict[str, str]:
        """The tools that the host does not take, each with its reason."""
        return {name: self._refused[name][1] for name, tool in self._tools.items() if self._is_refused(tool)}

    async def begin(self, *, joins: bool) -> None:
        """Lend for the first time; where it `joins`, only what differs from what the host has. Raises `HostError`."""
        if joins:
            await self._read()
        await self._bring()

    def changed(self, reason: str) -> None:
        """The tools are others now, for this reason."""
        self._reasons[reason] = None
        if self._settled is None and self._over is None:
            self._settled = asyncio.get_running_loop().create_future()
        self._news.set()

    async def settled(self) -> None:
        """Wait until the host has every change that was made so far. Raises `HostRefused` where it takes none."""
        if self._over is not None:
            raise self._over
        if self._settled is not None:
            await asyncio.shield(self._settled)

    async def run(self) -> None:
        """Send changes until cancelled. Raises `SessionOver`."""
        while True:
            await self._news.wait()
            await asyncio.sleep(self._pace.gather_s)
            self._news.clear()
            error = await self._sent()
            if not self._news.is_set():
                self._settle(error)

    def end(self, over: HostError) -> None:
        """No change is sent any more, for this reason."""
        self._over = over
        self._settle(over)

    async def _sent(self) -> HostRefused | None:
        try:
            await self._pace.insist(self._bring)
        except SessionOver:
            raise
        except HostRefused as refusal:
            _LOG.error("the host refuses a change of the tools: %s: %s", refusal.code, refusal)
            return refusal
        return None

    def _settle(self, error: HostError | None) -> None:
        settled, self._settled = self._settled, None
        if settled is None:
            return
        if error is None:
            settled.set_result(None)
        else:
            settled.set_exception(error)
            settled.exception()  # nobody need wait for it

    async def _bring(self) -> None:
        """Make the host's tools the application's: by an update, after a second look, or all anew."""
        wrong = await self._update()
        if wrong in _STALE:
            await self._read()
            wrong = await self._update()
        if wrong is not None:
            await self._register()

    async def _update(self) -> str | None:
        """Send the difference; the host's word for why it cannot be, where `_bring` knows a way around."""
        if self._has is None:
            return _UNKNOWN
        wanted = {name: tool.definition for name, tool in self._tools.items() if not self._is_refused(tool)}
        changes = difference(self._has, wanted)
        reasons = tuple(self._reasons)
        if changes:
            try:
                updated = await self._session.update(changes, _one_text(reasons), self._revision)
            except HostRefused as error:
                if error.code in _STALE | _UNFIT:
                    return error.code
                raise
            self._has, self._revision = wanted, updated.revision
        self._done(reasons)
        return None

    async def _register(self) -> None:
        wanted = {name: tool.definition for name, tool in self._tools.items()}
        reasons = tuple(self._reasons)
        answer = await self._session.register(self._introduction, list(wanted.values()))
        failed = {tool.tool_name: tool.error for tool in answer.failed_tools if tool.tool_name in wanted}
        for name, error in failed.items():
            _LOG.error("the host does not take the tool %r: %s", name, error)
        self._refused = {name: (wanted[name], error) for name, error in failed.items()}
        self._has = {name: definition for name, definition in wanted.items() if name not in failed}
        self._revision = answer.revision
        self._done(reasons)

    async def _read(self) -> None:
        """Look at what the host has; it is nothing where another application has introduced itself."""
        found = await self._session.metadata()
        told = {"pluginType": found.plugin_type, "capabilities": found.capabilities, "environment": found.environment}
        known = found.registered and told == self._introduction.wire()
        self._has = {tool.name: tool.definition() for tool in found.tools} if known else None
        self._revision = found.revision

    def _is_refused(self, tool: Tool) -> bool:
        refused = self._refused.get(tool.name)
        return refused is not None and refused[0] is tool.definition

    def _done(self, reasons: tuple[str, ...]) -> None:
        for reason in reasons:
            del self._reasons[reason]


def _one_text(reasons: tuple[str, ...]) -> str:
    return "; ".join(reasons)[:MAX_REASON]
