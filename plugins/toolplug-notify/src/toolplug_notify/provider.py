"""The plugin: the two hooks of approvals, each of which hands a ticket to the sender."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
from prometheus_client import Counter
from prometheus_client.registry import Collector

from toolplug import FunctionProvider, ProviderContext, Ticket, checked_transport
from toolplug_notify.sender import MAX_ANSWER_BYTES, TRY_S, Outcome, Sender
from toolplug_notify.settings import Settings, key_of


class Notify(FunctionProvider):
    """Tells a channel when calls wait for a person, and when they are decided."""

    Config = Settings
    config: Settings
    _sender: Sender | None = None

    async def start(self, site: ProviderContext) -> None:
        """Prepare the connection; nothing is sent."""
        settings = self.config
        url = settings.url.get_secret_value()
        transport = await checked_transport(site.egress, trusted=[url], max_answer_bytes=MAX_ANSWER_BYTES)
        self._client = httpx2.AsyncClient(transport=transport, follow_redirects=False, timeout=TRY_S)
        self._messages = Counter(
            "notify_messages", "Messages by what became of them: sent, failed or dropped.", ["outcome"], registry=None
        )
        self._sender = Sender(
            self._client,
            url,
            None if settings.secret is None else key_of(settings.secret),
            self._count,
            self.log,
            console=settings.console,
            with_arguments=settings.with_arguments,
        )

    async def aclose(self) -> None:
        """Send what waits, in three seconds at most."""
        if self._sender is not None:
            await self._sender.aclose()
            await self._client.aclose()

    def collectors(self) -> Sequence[Collector]:
        return (self._messages,)

    def approval_waiting(self, ticket: Ticket) -> None:
        """Tell of a call that waits."""
        if self._sender is not None:
            self._sender.put("approval.waiting", ticket)

    def approval_decided(self, ticket: Ticket) -> None:
        """Tell of a decision."""
        if self._sender is not None:
            self._sender.put("approval.decided", ticket)

    def _count(self, outcome: Outcome, number: int) -> None:
        self._messages.labels(outcome).inc(number)
