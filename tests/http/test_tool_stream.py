"""`GET /v1/tools/stream`, and what the headers of linked hosts do: for whom a call is, and by which way it came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx2 import AsyncClient
from starlette.types import ASGIApp
from tests.http.conftest import ALICE, KEYS, as_holder, client_of, settings
from tests.http.event_talk import talking

from toolplug import CallContext, Host, Principal, open_host, tool
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

STREAM = "/v1/tools/stream"
LINK = {"key": "link-key", "subject": "link", "tenant": "linked", "scopes": ["tools:read", "tools:call", "delegate"]}
AS_LINK = as_holder("link-key")
KEEPER = Principal("keeper")
ONE = as_holder("one-agent-key")
FOR_ALICE = {"Toolplug-Principal": "tenant=t%C3%A9&subject=alice%26co"}


@tool
async def who(context: CallContext) -> list[object]:
    """Return the caller and the hosts on the way."""
    return [context.principal.tenant, context.principal.subject, sorted(context.principal.scopes), context.via]


@pytest.fixture
async def linked() -> AsyncIterator[Host]:
    """A host with one tool, a key of a linked host, and an agent whose toolset can be taken away."""
    sections = settings(
        providers=None,
        auth={"api_keys": [*KEYS["api_keys"], LINK]},
        toolsets={"own": {"prefix": "own", "from": "provider:who"}},
        agents={"researcher": {"toolsets": ["own"]}},
    )
    async with open_host(sections, environ={}, providers=[who]) as opened:
        yield opened


@pytest.fixture
def app(linked: Host) -> ASGIApp:
    """The application of that host."""
    return create_app(linked)


@pytest.fixture
async def caller(app: ASGIApp) -> AsyncIterator[AsyncClient]:
    """A client of that application."""
    async with client_of(app) as opened:
        yield opened


WHO = {
    "name": "who",
    "description": "Return the caller and the hosts on the way.",
    "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    "annotations": {},
}


@pytest.mark.requirement("C-5-tool-stream")
async def test_a_stream_begins_with_the_catalog_and_sends_each_change(linked: Host, app: ASGIApp) -> None:
    async with talking(app, STREAM, ONE) as talk:
        begun = await talk.until("connected")
        [own] = begun.data["tools"]
        assert own.items() >= {**WHO, "name": "own.who"}.items()
        host = begun.data["host"]
        data = {"host": host, "delegate": False, "revision": begun.id, "resumed": False, "tools": [own], "via": {}}
        assert begun.data == data
        await linked.allow("researcher", [], tenant=KEEPER.tenant)
        gone = await talk.until("tools-changed")
        assert gone.data == {"revision": gone.id, "names": [], "tools": [], "via": {}}
        await linked.allow("researcher", ["own"], tenant=KEEPER.tenant)
        back = await talk.until("tools-changed")
        assert back.data == {"revision": begun.id, "names": ["own.who"], "tools": [own], "via": {}}
    async with talking(app, STREAM, ONE, begun.id) as talk:
        again = await talk.next()
        resumed = {"host": host, "delegate": False, "revision": begun.id, "resumed": True}
        assert (again.event, again.data) == ("connected", resumed)
    async with talking(app, STREAM, ONE, gone.id) as talk:
        told = [await talk.next(), await talk.next()]
        assert [each.event for each in told] == ["resync", "connected"]
        assert told[1].data["tools"] == [own]


@pytest.mark.requirement("C-5-tool-stream")
async def test_a_stream_ends_when_the_host_stops(linked: Host, app: ASGIApp) -> None:
    async with talking(app, STREAM, ALICE) as talk:
        await talk.until("connected")
        linked.stop()
        assert await talk.rest() == []


@pytest.mark.requirement("C-5-tool-stream")
async def test_a_stream_needs_a_key_that_may_read(caller: AsyncClient) -> None:
    assert (await caller.get(STREAM)).status_code == 401
    refused = await caller.get(STREAM, headers=as_holder("caller-key"))
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "tools:read")
    other = await caller.get(STREAM, headers=as_holder("one-agent-key"), params={"agent": "writer"})
    assert (other.status_code, other.json()["error"]["code"]) == (403, "agent_not_allowed")


@pytest.mark.requirement("C-5-delegate")
async def test_a_key_with_the_scope_delegate_calls_for_the_tenant_and_subject_that_it_names(
    caller: AsyncClient,
) -> None:
    body = {"name": "who", "arguments": {}}
    headers = {**AS_LINK, **FOR_ALICE, "Toolplug-Via": "one, two"}
    answer = (await caller.post("/v1/tool-calls", headers=headers, json=body)).json()
    assert answer["structured"] == ["té", "alice&co", ["tools:call", "tools:read"], ["one", "two"]]
    own = (await caller.post("/v1/tool-calls", headers=AS_LINK, json=body)).json()
    assert own["structured"][:2] == ["linked", "link"]


@pytest.mark.requirement("C-5-delegate")
@pytest.mark.parametrize("key", ["alice-key", "root-key"])
async def test_no_other_scope_implies_delegate(caller: AsyncClient, key: str) -> None:
    headers = {**as_holder(key), **FOR_ALICE}
    for answer in (
        await caller.post("/v1/tool-calls", headers=headers, json={"name": "who", "arguments": {}}),
        await caller.get(STREAM, headers=headers),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
        assert answer.json()["error"]["param"] == "delegate"


@pytest.mark.requirement("C-5-delegate")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "alice",
        "tenant=t1",
        "tenant=&subject=a",
        "tenant=a&subject=b&x=c",
        "tenant=%00&subject=a",
        "tenant=%20%20&subject=a",
        "tenant=t1%20&subject=a",
        "tenant=t%E2%80%AE1&subject=a",
        "tenant=t1&subject=%E3%85%A4",
    ],
)
async def test_an_invalid_principal_is_refused(caller: AsyncClient, value: str) -> None:
    headers = {**AS_LINK, "Toolplug-Principal": value}
    answer = await caller.post("/v1/tool-calls", headers=headers, json={"name": "who", "arguments": {}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Toolplug-Principal")


@pytest.mark.requirement("C-5-loops")
async def test_a_call_that_came_through_this_host_or_five_others_is_a_loop(linked: Host, caller: AsyncClient) -> None:
    async def sent(via: str) -> Any:
        headers = {**AS_LINK, "Toolplug-Via": via}
        return (await caller.post("/v1/tool-calls", headers=headers, json={"name": "who", "arguments": {}})).json()

    own = linked.toolsets.sources.host
    returned = await sent(f"other, {own}")
    assert (returned["status"], returned["metadata"]) == ("unavailable", {"code": "loop"})
    assert returned["output"] == 'tool "who" is unavailable: loop: the call came through this host before'
    assert (await sent("a,b,c,d"))["status"] == "success"
    assert (await sent("a,b,c,d,e"))["status"] == "unavailable"
    assert (await sent("a b"))["error"]["param"] == "Toolplug-Via"


@pytest.mark.requirement("C-5-loops")
async def test_the_stream_shows_a_host_nothing_that_leads_back_to_it(linked: Host, app: ASGIApp) -> None:
    headers = {**AS_LINK, "Toolplug-Via": linked.toolsets.sources.host}
    async with talking(app, STREAM, headers) as talk:
        assert (await talk.until("connected")).data["tools"] == []
