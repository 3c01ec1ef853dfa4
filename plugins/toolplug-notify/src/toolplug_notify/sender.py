"""Sending: one message a second for each tenant, three tries, and nothing that waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import time
from typing import Literal

import httpx2

from toolplug import Ticket
from toolplug_notify.message import Event, Message, of_several, of_ticket, signature

Outcome = Literal["sent", "failed", "dropped"]
Count = Callable[[Outcome, int], None]

EVERY_S = 1.0
"""Seconds between two messages of one tenant; what comes meanwhile is one message."""
TRIES = 3
PAUSES_S = (0.5, 2.0)
"""Seconds before the second and the third try."""
TRY_S = 5.0
"""Seconds of one try, with its connection."""
CLOSE_S = 3.0
"""Seconds at the end of the host for what was not sent."""
MAX_WAITING = 1_000
"""Tickets of a tenant that wait for the next message; of more only the number is told."""
MAX_TENANTS = 1_000
"""Tenants with something to send; what comes of others is dropped."""
# A receiver answers with a few words. Whoever it is, the host does not read a megabyte of it.
MAX_ANSWER_BYTES = 64 * 1024
_AGAIN = frozenset({408, 425, 429})


@dataclass(slots=True, eq=False)
class _Outbox:
    """What one tenant has to be told."""

    waiting: deque[tuple[Event, Ticket]] = field(default_factory=deque[tuple[Event, Ticket]])
    missed: int = 0


class Sender:
    """Sends the messages of all tenants; a slow receiver only makes digests longer."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        key: bytes | None,
        count: Count,
        log: logging.Logger,
        *,
        console: str | None = None,
        with_arguments: bool = False,
    ) -> None:
        self._client = client
        self._url = url
        self._key = key
        self._count = count
        self._log = log
        self._console = console
        self._with_arguments = with_arguments
        self._outboxes: dict[str, _Outbox] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._failing = False

    def put(self, event: Event, ticket: Ticket) -> None:
        """Have a ticket told; returns at once."""
        outbox = self._outboxes.get(ticket.tenant)
        if outbox is None:
            if len(self._outboxes) >= MAX_TENANTS:
                self._count("dropped", 1)
                return
            outbox = self._outboxes[ticket.tenant] = _Outbox()
            task = asyncio.create_task(self._send_all(ticket.tenant, outbox), name="toolplug-notify")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(outbox.waiting) >= MAX_WAITING:
            outbox.missed += 1
            self._count("dropped", 1)
        else:
            outbox.waiting.append((event, ticket))

    async def aclose(self) -> None:
        """Send what waits, in three seconds at most."""
        self._closing.set()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSE_S)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def _send_all(self, tenant: str, outbox: _Outbox) -> None:
        try:
            while outbox.waiting:
                await self._send(self._next(outbox))
                # Also after the last one: what comes within this second waits for the next.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), EVERY_S)
        finally:
            del self._outboxes[tenant]

    def _next(self, outbox: _Outbox) -> Message:
        tickets, missed = list(outbox.waiting), outbox.missed
        outbox.waiting.clear()
        outbox.missed = 0
        if len(tickets) == 1 and not missed:
            ((event, ticket),) = tickets
            return of_ticket(event, ticket, console=self._console, with_arguments=self._with_arguments)
        # Who has decided already needs no call to do so.
        decided = {ticket.id for event, ticket in tickets if event == "approval.decided"}
        told = [each for each in tickets if each[0] == "approval.decided" or each[1].id not in decided]
        if len(told) == 1 and not missed:
            ((event, ticket),) = told
            return of_ticket(event, ticket, console=self._console, with_arguments=self._with_arguments)
        return of_several(told, missed, console=self._console)

    async def _send(self, message: Message) -> None:
        body, why = message.body(), ""
        for attempt in range(TRIES):
            if attempt:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), PAUSES_S[attempt - 1])
            why, again = await self._try(message.id, body)
            if not why:
                if self._failing:
                    self._log.info("messages arrive again")
                self._failing = False
                self._count("sent", 1)
                return
            if not again:
                break
        self._count("failed", 1)
        # The first of a row: a receiver that is away for a night would fill the log.
        if not self._failing:
            self._log.error("a message was not delivered: %s; calls go on without it", why)
        self._failing = True

    async def _try(self, message_id: str, body: bytes) -> tuple[str, bool]:
        """Return why one try failed, empty if it did not, and whether another one is of use."""
        headers = {"content-type": "application/json", "webhook-id": message_id, "user-agent": "toolplug-notify"}
        now = int(time())
        headers["webhook-timestamp"] = str(now)
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, message_id, now, body)
        try:
            async with asyncio.timeout(TRY_S):
                answer = await self._client.post(self._url, content=body, headers=headers)
        # Not its text, which may have the address in it.
        except (httpx2.HTTPError, TimeoutError) as error:
            return f"the receiver does not answer ({type(error).__name__})", True
        if answer.is_success:
            return "", False
        if answer.is_redirect:
            return f"the receiver answers {answer.status_code}, and redirects are not followed: set its new url", False
        return f"the receiver answers {answer.status_code}", answer.status_code >= 500 or answer.status_code in _AGAIN
