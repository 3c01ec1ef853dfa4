"""Prompts, resources, completions and instructions of servers behind a host, through to clients of both eras.

The server behind is one of the SDK (2026-07-28), on pipes and over HTTP, and `server-everything` (2025-11-25).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from subprocess import PIPE, Popen
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    EmptyResult,
    PromptReference,
    ResourceTemplateReference,
    SubscribeRequest,
    SubscribeRequestParams,
)
from tests.http.conftest import ALICE, KEYS, ROOT, with_agents_of_keys
from tests.http.served import served
from tests.kept_port import kept_port
from tests.mcp.conftest import Opened
from tests.mcp.forking import Forked
from tests.mcp.reference.servers import everything_over_http, node_server
from tests.mcp.servers import offering_server

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(400),  # the first run on a machine fetches a server
    pytest.mark.requirement("I14-5-passed-through"),
]

WAIT_S = 30.0
Entry = dict[str, Any]
TRANSPORTS = [pytest.param("stdio", marks=pytest.mark.judge), pytest.param("http", marks=pytest.mark.mcp)]


@pytest.fixture
def words() -> list[str]:
    """The arguments of the library's server after its transport; a test may give some."""
    return []


@pytest.fixture
def over_http(forked: Forked, words: list[str]) -> Iterator[Entry]:
    with Popen(forked(offering_server.__file__, "http", *words), stdout=PIPE) as process:
        assert process.stdout is not None
        try:
            yield {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        finally:
            process.kill()


@pytest.fixture(params=TRANSPORTS)
def library(request: pytest.FixtureRequest, forked: Forked, words: list[str]) -> Entry:
    """The SDK's server, on pipes or over HTTP."""
    if request.param == "stdio":
        return {"command": sys.executable, "args": [str(offering_server.__file__), "stdio", *words]}
    return request.getfixturevalue("over_http")


@pytest.fixture(params=TRANSPORTS)
def everything(request: pytest.FixtureRequest) -> Iterator[Entry]:
    """The reference server, on pipes or over HTTP."""
    if request.param == "stdio":
        yield node_server("server-everything", "stdio")
        return
    with kept_port() as port, everything_over_http(port) as url:
        yield {"url": url}


@pytest.fixture
def servers(library: Entry) -> dict[str, Entry]:
    """The entries of `mcp_servers`; a test may ask for others."""
    return {"library": library}


@pytest.fixture
def url(servers: dict[str, Entry]) -> Iterator[str]:
    """Where a host with these servers is served, each with a prefix; the agent `own` has each for its session."""
    own = {f"own-{name}": {"prefix": "own", "from": f"mcp:{name}", "scope": "session"} for name in servers}
    whole = with_agents_of_keys(
        {
            "store": "memory://",
            "auth": KEYS,
            "mcp_servers": {name: {**entry, "prefix": name} for name, entry in servers.items()},
            "toolsets": own,
            "agents": {"own": {"toolsets": [*own]}, "none": {"toolsets": []}},
        }
    )
    host = open_host(whole, environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def discovered(url: str, server: str) -> AsyncIterator[dict[str, Any]]:
    """The record of a server that has been discovered."""
    async with AsyncClient(base_url=url, headers=ROOT, timeout=WAIT_S * 2) as operator:
        record = (await operator.post(f"/api/mcp-servers/{server}/discover?wait=30s")).json()
        assert (record["status"], record.get("error")) == ("success", None)
        yield record


def texts(result: Any) -> list[str]:
    """The texts of messages or contents."""
    parts = [message.content for message in result.messages] if hasattr(result, "messages") else result.contents
    return [part.text for part in parts]


async def test_titles_and_icons_of_tools_come_through(opened: Opened, url: str) -> None:
    async with discovered(url, "library"), opened() as client:
        touch, learn = (await client.list_tools()).tools
    assert (touch.name, touch.title) == ("library__touch", "Touch a book")
    assert [icon.src for icon in touch.icons or ()] == ["https://example.com/touch.png"]
    assert (learn.title, learn.icons) == (None, None)


@pytest.mark.requirement("I32-mcp-tool-meta")
async def test_a_tools_meta_and_the_view_that_it_names_come_through(opened: Opened, url: str) -> None:
    async with discovered(url, "library"), opened() as client:
        touch, learn = (await client.list_tools()).tools
        assert touch.meta == {
            "ui": {"resourceUri": offering_server.VIEW},
            "theirs": "ab",
            "toolplug/name": "library.touch",
        }
        assert learn.meta == {"toolplug/name": "library.learn"}
        [page] = (await client.read_resource(offering_server.VIEW)).contents
    assert (page.text, page.mime_type) == (offering_server.view(), "text/html;profile=mcp-app")


async def refusal(asked: Any) -> tuple[int, str]:
    with pytest.raises(MCPError) as caught:
        await asked
    return caught.value.code, caught.value.message


async def test_prompts_and_resources_come_through_under_the_prefix(opened: Opened, url: str) -> None:
    async with discovered(url, "library"), opened() as client:
        assert client.instructions == "# library\n\nAsk for one book at a time."
        summarize, broken = (await client.list_prompts()).prompts
        assert (summarize.name, summarize.title, summarize.description, (summarize.meta or {})["toolplug/name"]) == (
            "library__summarize",
            "Summarize",
            "Summarize a book.",
            "library.summarize",
        )
        assert [icon.src for icon in summarize.icons or ()] == ["https://example.com/icon.png"]
        assert [(item.name, item.required) for item in summarize.arguments or ()] == [("book", True)]
        assert texts(await client.get_prompt("library.summarize", {"book": "otters"})) == ["Summarize otters."]
        code, words = await refusal(client.get_prompt(broken.name))
        assert code == -32603
        assert "rosebud" not in words

        index, _ = (await client.list_resources()).resources
        assert (index.uri, index.title) == ("book://index", "Index")
        assert [item.uri_template for item in (await client.list_resource_templates()).resource_templates] == [
            "book://by/{name}"
        ]
        assert texts(await client.read_resource("book://index")) == ["otters"]
        assert texts(await client.read_resource("book://by/otters")) == ["Otters hold hands."]
        reference = ResourceTemplateReference(uri="book://by/{name}")
        assert (await client.complete(reference, {"name": "name", "value": ""})).completion.values == ["otters"]
        named = PromptReference(name="library__summarize")
        assert (await client.complete(named, {"name": "book", "value": ""})).completion.values == ["otters"]


@pytest.mark.parametrize("words", [["uncompleted"]])
async def test_a_server_without_completions_completes_nothing(opened: Opened, url: str) -> None:
    async with discovered(url, "library"), opened() as client:
        assert client.server_capabilities.completions is not None  # the host has them for its other servers
        prompt = PromptReference(name="library__summarize")
        template = ResourceTemplateReference(uri="book://by/{name}")
        for reference, name in ((prompt, "book"), (template, "name")):
            assert (await client.complete(reference, {"name": name, "value": "o"})).completion.values == []


async def test_an_agent_gets_what_its_toolsets_have_and_no_other_gets_anything(opened: Opened, url: str) -> None:
    async with discovered(url, "library"):
        async with opened("/mcp?agent=own") as client:
            assert [item.name for item in (await client.list_prompts()).prompts] == ["own__summarize", "own__broken"]
            assert texts(await client.get_prompt("own__summarize", {"book": "otters"})) == ["Summarize otters."]
            assert texts(await client.read_resource("book://index")) == ["otters"]
            assert (await refusal(client.get_prompt("library.summarize")))[1] == 'no prompt "library.summarize"'
        async with opened("/mcp?agent=none") as client:
            assert client.instructions is None
            assert (await client.list_prompts()).prompts == []
            assert (await client.list_resources()).resources == []
            assert (await refusal(client.read_resource("book://index")))[1] == 'no resource "book://index"'


class News:
    """What a client is notified of, whatever its era."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def handler(self, message: Any) -> None:
        uri = getattr(getattr(message, "params", None), "uri", None)
        self._heard.put_nowait(f"{message.method} {uri}" if uri else message.method)

    async def next(self) -> str:
        async with asyncio.timeout(WAIT_S):
            return await self._heard.get()

    @asynccontextmanager
    async def of(self, client: Client, era: str, uri: str) -> AsyncIterator[None]:
        """Follow this resource and the list of prompts."""
        if era == "2025-11-25":
            request = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
            await client.session.send_request(request, EmptyResult)
            yield
            return
        async with client.listen(prompts_list_changed=True, resource_subscriptions=[uri]) as subscription:
            assert subscription.honored.resource_subscriptions == [uri]
            reading = asyncio.create_task(self._read(subscription))
            try:
                yield
            finally:
                reading.cancel()
                await asyncio.wait({reading})

    async def _read(self, subscription: Any) -> None:
        async for event in subscription:
            name = type(event).__name__
            updated = "notifications/resources/updated"
            self._heard.put_nowait(f"{updated} {event.uri}" if name == "ResourceUpdated" else name)


async def test_an_update_of_a_followed_resource_reaches_the_client(opened: Opened, url: str, era: str) -> None:
    news = News()
    async with (
        discovered(url, "library"),
        opened(message_handler=news.handler) as client,
        news.of(client, era, "book://index"),
    ):
        await client.call_tool("library__touch", {"uri": "book://other"})
        await client.call_tool("library__touch", {"uri": "book://index"})
        assert await news.next() == "notifications/resources/updated book://index"


async def test_a_new_prompt_is_announced_after_the_list_has_it(opened: Opened, url: str, era: str) -> None:
    news = News()
    async with discovered(url, "library"), opened(message_handler=news.handler) as client:
        assert len((await client.list_prompts()).prompts) == 2
        async with news.of(client, era, "book://index"):
            await client.call_tool("library__learn", {"name": "more"})
            assert await news.next() in ("notifications/prompts/list_changed", "PromptsListChanged")
            listed = (await client.list_prompts(cache_mode="refresh")).prompts
            assert [item.name for item in listed] == ["library__summarize", "library__broken", "library__more"]


@pytest.mark.mcp
@pytest.mark.parametrize("servers", [{"gone": {"command": sys.executable, "args": ["-c", "pass"]}}])
async def test_a_server_that_is_down_offers_nothing(opened: Opened, url: str) -> None:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as alice, opened() as client:
        await alice.post("/api/mcp-servers/gone/discover?wait=5s", headers=ROOT)
        assert (await client.list_prompts()).prompts == []
        assert client.instructions is None


class TestEverything:
    """The reference server of 2025-11-25."""

    @pytest.fixture
    def servers(self, everything: Entry) -> dict[str, Entry]:
        return {"everything": everything}

    async def test_all_that_it_offers_comes_through(self, opened: Opened, url: str) -> None:
        async with discovered(url, "everything"), opened() as client:
            assert (client.instructions or "").startswith("# everything\n\n# Everything Server")
            assert [item.name for item in (await client.list_prompts()).prompts] == [
                "everything__simple-prompt",
                "everything__args-prompt",
                "everything__completable-prompt",
                "everything__resource-prompt",
            ]
            asked = {"city": "Oslo", "state": "Viken"}
            assert texts(await client.get_prompt("everything.args-prompt", asked)) == ["What's weather in Oslo, Viken?"]
            code, words = await refusal(client.get_prompt("everything.args-prompt", {}))
            assert (code, "Invalid arguments for prompt args-prompt" in words) == (-32602, True)
            assert "Resource 1: " in texts(await client.read_resource("demo://resource/dynamic/text/1"))[0]
            [blob] = (await client.read_resource("demo://resource/dynamic/blob/2")).contents
            assert hasattr(blob, "blob")
            named = PromptReference(name="everything.completable-prompt")
            sales = await client.complete(
                named, {"name": "name", "value": ""}, context_arguments={"department": "Sales"}
            )
            assert sales.completion.values == ["David", "Eve", "Frank"]

    async def test_its_updates_reach_the_client(self, opened: Opened, url: str, era: str) -> None:
        news, uri = News(), "demo://resource/dynamic/text/1"
        async with (
            discovered(url, "everything"),
            opened(message_handler=news.handler) as client,
            news.of(client, era, uri),
        ):
            await client.call_tool("everything__toggle-subscriber-updates")
            assert await news.next() == f"notifications/resources/updated {uri}"
