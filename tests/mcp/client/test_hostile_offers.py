"""Servers that misbehave at their prompts, resources, templates and completions: only what was asked of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.mcp.client.conftest import Opened
from tests.mcp.client.hostile import OFFERS
from tests.mcp.client.test_hostile_pipes import SOON_S, names

from toolplug.foreign.sanitise import RemovedParts
from toolplug.parts.mcp.client.connection import BadAnswer, ConnectionFailed, ServerConnection
from toolplug.parts.mcp.discovery.offers import MAX_OFFERS, RawOffers, read_offers

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]

REQUESTS: dict[str, Mapping[str, object]] = {
    "prompts/get": {"name": "ask"},
    "resources/read": {"uri": "odd://one"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "ask"},
        "argument": {"name": "what", "value": ""},
    },
}


async def lists(connection: ServerConnection) -> RawOffers:
    async with asyncio.timeout(SOON_S):
        return await connection.offers()


def failures(why: str) -> tuple[str, ...]:
    return tuple(f"{key} are not listed: {why}" for key in OFFERS)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("offers pages for ever", "the list has more than 100 pages"),
        ("offers in a circle", "the list comes back to a page that it began with"),
        ("offers no lists", "the list is no list"),
    ],
)
@pytest.mark.requirement("H-mcp-pages")
async def test_lists_without_end_are_reported_and_tools_work(hostile_server: Opened, mode: str, why: str) -> None:
    async with hostile_server(mode) as connection:
        assert await lists(connection) == RawOffers(failed=failures(why))
        assert names(await connection.tools()) == ["echo", "other"]


@pytest.mark.requirement("H-mcp-pages")
async def test_a_list_that_does_not_come_costs_no_other_list(hostile_server: Opened) -> None:
    async with hostile_server("offers mute") as connection:
        found = await lists(connection)
    assert found.failed == ("prompts were not listed within 5 s",)
    assert (found.prompts, found.resources, found.templates) == (
        (),
        OFFERS["resources"],
        OFFERS["resourceTemplates"],
    )


@pytest.mark.requirement("H-mcp-dies")
async def test_a_server_that_dies_at_a_list_has_no_lists(hostile_server: Opened) -> None:
    async with hostile_server("offers dying at a list") as connection:
        with pytest.raises(ConnectionFailed, match="it ended with exit code 6"):
            await lists(connection)


@pytest.mark.requirement("H-mcp-pages")
async def test_lists_are_read_until_there_is_more_than_is_kept(hostile_server: Opened) -> None:
    async with hostile_server("offers too much") as connection:
        found = await lists(connection)
    assert (len(found.prompts), len(found.resources), len(found.templates)) == (MAX_OFFERS + 1,) * 3
    assert found.failed == ()


@pytest.mark.requirement("H-mcp-garbage")
async def test_a_sloppy_entry_loses_no_other(hostile_server: Opened) -> None:
    async with hostile_server("offers sloppily") as connection:
        left_out = RemovedParts(at_most=100)
        found = await read_offers(await lists(connection), left_out)
    kept = [found.prompts[0]["name"], found.resources[0]["uri"], found.templates[0]["uriTemplate"]]
    assert kept == ["ask", "odd://one", "odd://by/{name}"]
    assert (len(found.prompts), len(found.resources), len(found.templates), len(left_out.lines())) == (1, 1, 1, 12)


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize(
    ("mode", "failure", "why"),
    [
        ("offers and dies", ConnectionFailed, "it ended with exit code 7"),
        ("offers a flood", ConnectionFailed, "it sent a line of more than 6,291,456 bytes"),
        ("offers 10 MB", ConnectionFailed, "it sent a line of more than 6,291,456 bytes"),
    ],
)
@pytest.mark.requirement("H-mcp-floods", "H-mcp-dies")
async def test_a_request_ends_with_the_server(
    hostile_server: Opened, mode: str, method: str, failure: type[Exception], why: str
) -> None:
    async with asyncio.timeout(SOON_S), hostile_server(mode) as connection:
        with pytest.raises(failure, match=why):
            await connection.request(method, REQUESTS[method])


@pytest.mark.parametrize("mode", ["offers bad types", "offers depth", "offers surrogates"])
@pytest.mark.requirement("H-mcp-garbage")
async def test_an_answer_that_cannot_be_read_is_that_of_one_request(hostile_server: Opened, mode: str) -> None:
    async with asyncio.timeout(SOON_S), hostile_server(mode) as connection:
        for method, params in REQUESTS.items():
            with pytest.raises(BadAnswer):
                await connection.request(method, params)
        assert names(await connection.tools()) == ["echo", "other"]
        assert (await lists(connection)).failed == ()


async def test_a_request_that_is_cancelled_leaves_the_connection_as_it_was(hostile_server: Opened) -> None:
    async with asyncio.timeout(SOON_S), hostile_server("offers and is mute") as connection:
        for method, params in REQUESTS.items():
            request = asyncio.create_task(connection.request(method, params))
            for _ in range(20):
                await asyncio.sleep(0)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
        assert names(await connection.tools()) == ["echo", "other"]
