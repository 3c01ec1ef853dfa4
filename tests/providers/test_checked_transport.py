"""The transport for providers that request what others name: permitted addresses, bounded answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.mcp.client.hostile_http import HostileHttp
from tests.mcp.client.serving import serving

from toolplug import Egress, FunctionProvider, FunctionRegistry, ProviderContext, checked_transport

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(HostileHttp()) as port:
        yield f"http://127.0.0.1:{port}/"


async def test_only_permitted_addresses_and_trusted_urls_are_reached(url: str) -> None:
    for egress, trusted, reached in (
        (Egress(), [], False),
        (Egress(), [url], True),
        (Egress(), ["http://127.0.0.1:1/"], False),
        (Egress(("loopback",)), [], True),
    ):
        transport = await checked_transport(egress, trusted=trusted)
        async with httpx2.AsyncClient(transport=transport) as client:
            if reached:
                assert (await client.get(url)).status_code > 0
            else:
                with pytest.raises(httpx2.ConnectError, match="an address which is not public"):
                    await client.get(url)


async def test_an_answer_over_its_limit_is_an_error(url: str) -> None:
    transport = await checked_transport(Egress(), trusted=[url], max_answer_bytes=0)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.TransportError, match="larger than 0 bytes"):
            await client.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})


class Keeps(FunctionProvider):
    """Keeps the egress rules that it is given."""

    async def start(self, site: ProviderContext) -> None:
        self.egress = site.egress


async def test_a_provider_is_given_the_rules_of_its_host_or_public_addresses_only() -> None:
    alone = Keeps()
    async with FunctionRegistry([alone]):
        assert alone.egress == Egress()
