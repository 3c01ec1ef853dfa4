"""Callers over `/mcp` who have to sign in: their client opens the link, or the model has it as text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult
from tests.cli.process import TOOLPLUG
from tests.credentials.oauth_server import Accounts, serving_oauth
from tests.credentials.test_sign_in import press, settings
from tests.http.served import served
from tests.mcp.conftest import ERAS
from tests.mcp.test_tools import text_of

from mcp import StdioServerParameters, stdio_client
from toolplug import open_host
from toolplug.http import create_app
from toolplug.parts.mcp.sdk import elicitation

pytestmark = [pytest.mark.anyio, pytest.mark.mcp, pytest.mark.requirement("I38-url-elicitation")]

LEGACY, MODERN = sorted(ERAS)


class Person:
    """Opens each link in a browser and signs in there, or does as `action` says."""

    def __init__(self, action: str = "accept") -> None:
        self.action = action
        self.asked: list[ElicitRequestURLParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        self.asked.append(params)
        if self.action == "accept":
            await sign_in(params.url)
        return ElicitResult.model_validate({"action": self.action})


async def sign_in(link: str) -> None:
    async with AsyncClient(base_url=link.partition("/connect/")[0]) as browser:
        assert (await press(browser, link)).status_code == 200


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def server(accounts: Accounts) -> Iterator[str]:
    with serving_oauth(accounts) as found:
        yield found


@asynccontextmanager
async def connected(server: str, tmp_path: Path, era: str, **options: Any) -> AsyncGenerator[Client]:
    """A client of Ada's, of this era."""
    host = open_host(settings(server, tmp_path), environ={})
    with served(host, create_app(host)) as port:
        headers = {"x-api-key": "ada-key"}
        async with AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as http:
            async with asyncio.timeout(30):
                while "who__whoami" not in (await http.get("/v1/tools")).text:
                    await asyncio.sleep(0.05)
            transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            async with Client(transport, mode=ERAS[era], **options) as client:
                yield client


async def test_a_client_of_the_newer_era_opens_the_link_and_repeats_the_call(server: str, tmp_path: Path) -> None:
    person = Person()
    async with connected(server, tmp_path, MODERN, elicitation_callback=person) as client:
        answer = await client.call_tool("who.whoami", {})
        assert (text_of(answer), answer.is_error) == ("ada", False)
        (asked,) = person.asked
        assert asked.url in asked.message
        assert "/connect/" in asked.url


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_sign_in_is_asked_once_in_a_call(server: str, tmp_path: Path, action: str) -> None:
    person = Person(action)
    async with connected(server, tmp_path, MODERN, elicitation_callback=person) as client:
        answer = await client.call_tool("who.whoami", {})
        assert answer.is_error
        (asked,) = person.asked
        assert asked.url in text_of(answer)


async def test_a_client_of_the_older_era_gets_the_error_for_it(server: str, tmp_path: Path) -> None:
    async with connected(server, tmp_path, LEGACY, elicitation_callback=Person()) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("who.whoami", {})
        assert refused.value.error.code == -32042
        (asked,) = UrlElicitationRequiredError.from_error(refused.value.error).elicitations
        assert asked.elicitation_id
        assert asked.elicitation_id not in asked.url
        await sign_in(asked.url)
        assert text_of(await client.call_tool("who.whoami", {})) == "ada"


@pytest.mark.parametrize("era", sorted(ERAS))
async def test_a_client_that_opens_no_links_has_it_as_text(server: str, tmp_path: Path, era: str) -> None:
    async with connected(server, tmp_path, era) as client:
        answer = await client.call_tool("who.whoami", {})
        assert answer.is_error
        link = next(word for word in text_of(answer).split() if "/connect/" in word)
        await sign_in(link)
        assert text_of(await client.call_tool("who.whoami", {})) == "ada"


async def test_over_standard_input_the_one_user_signs_in_at_another_host(server: str, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    del config["auth"]  # which a start over HTTP at another address would need

    async def refusal() -> str:
        (tmp_path / "providers.yaml").write_text(json.dumps(config))
        command = StdioServerParameters(command=str(TOOLPLUG), args=["serve", "--stdio"], cwd=tmp_path)
        async with Client(stdio_client(command)) as client, asyncio.timeout(60):
            while "who__whoami" not in {each.name for each in (await client.list_tools()).tools}:
                await asyncio.sleep(0.05)
            return text_of(await client.call_tool("who__whoami", {}))

    assert "the host has no http.public_url for the link" in await refusal()
    config["http"]["public_url"] = "https://tools.example"
    assert "https://tools.example/connect/" in await refusal()


async def test_no_link_to_another_host_is_opened(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = elicitation._ask_to_sign_in

    def lie(ctx: Any, params: Any, result: Any) -> Any:
        link = {**result.metadata.get("sign_in", {}), "url": "https://phishing.example/connect/x"}
        return asking(ctx, params, result._replace(metadata={**result.metadata, "sign_in": link}))

    monkeypatch.setattr(elicitation, "_ask_to_sign_in", lie)
    person = Person("decline")
    async with connected(server, tmp_path, MODERN, elicitation_callback=person) as client:
        assert (await client.call_tool("who.whoami", {})).is_error
        assert person.asked == []
