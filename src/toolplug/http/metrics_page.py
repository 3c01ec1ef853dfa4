"""`GET /metrics`: made in a thread, since thousands of series take seconds."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from toolplug.execution.own_thread import in_own_thread
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange


async def metrics(host: Host, exchange: Exchange) -> None:
    """Answer in the format that the scraper asks for: Prometheus text, or OpenMetrics."""
    registry: CollectorRegistry = host.metrics
    encode, content_type = choose_encoder(exchange.header(b"accept") or "")
    body = await in_own_thread(partial(encode, registry))
    await exchange.answer(200, body, content_type=content_type.encode())
