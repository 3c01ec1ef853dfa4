"""Waiting for the decisions of people on calls: the approvals of the host have no way to be woken across processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from toolplug import HostApprovals, Ticket
from toolplug.errors import StoreError
from toolplug.runtime import BackgroundTasks

LOOK_S = 1.0
"""Between two looks at the tickets of the tenants whose calls wait; one list a tenant, whatever the number of calls."""
_LOG = logging.getLogger("toolplug.tasks")


class Decisions:
    """The calls of this process that wait for a person."""

    def __init__(self, approvals: Callable[[], HostApprovals]) -> None:
        self._approvals = approvals
        self._waiting: dict[tuple[str, str], set[asyncio.Future[bool]]] = {}
        self._looking = BackgroundTasks()

    async def wait(self, tenant: str, ticket: str) -> bool:
        """Wait until a ticket is decided, and return True; False if it has expired."""
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((tenant, ticket), set()).add(decided)
        if not self._looking:
            self._looking.start(self._look(), "toolplug-tasks-decisions")
        try:
            return await decided
        finally:
            waiting = self._waiting.get((tenant, ticket), set())
            waiting.discard(decided)
            if not waiting:
                self._waiting.pop((tenant, ticket), None)

    def tell(self, ticket: Ticket) -> None:
        """Wake what waits for a ticket that was decided in this process."""
        self._wake((ticket.tenant, ticket.id), decided=True)

    async def aclose(self) -> None:
        """Look no longer."""
        await self._looking.cancel()

    def _wake(self, key: tuple[str, str], *, decided: bool) -> None:
        for waiting in self._waiting.get(key, ()):
            if not waiting.done():
                waiting.set_result(decided)

    async def _look(self) -> None:
        failing = False
        while self._waiting:
            await asyncio.sleep(LOOK_S)
            try:
                for tenant in {tenant for tenant, _ in self._waiting}:
                    await self._look_at(tenant)
                failing = False
            except StoreError as error:
                if not failing:
                    _LOG.warning("decisions on calls are not heard until the store can answer: %s", error)
                failing = True

    async def _look_at(self, tenant: str) -> None:
        # Before the list is read: a ticket that is made meanwhile is no expired one.
        asked = [key for key in self._waiting if key[0] == tenant]
        states = {ticket.id: ticket.state for ticket in await self._approvals().waiting(tenant)}
        for key in asked:
            state = states.get(key[1])
            if state != "waiting":
                with suppress(KeyError):
                    self._wake(key, decided=state is not None)
