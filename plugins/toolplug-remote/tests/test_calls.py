"""Tools of a real second host: listed, called for their callers, and what their calls pass on."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from tests.byte_proxy import Proxy

from toolplug import ToolStatus

from .conftest import NAMES, PATIENCE_S, FarHost, Link

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-7-remote-hosts")]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.requirement("ROUTE-goal-remote")
async def test_tools_are_listed_in_order_and_called_for_their_caller(far: FarHost, link: Link) -> None:
    async with link(far.url) as here:
        assert list(here.tools.catalog) == NAMES
        result = await here.call("who", trace_context={"traceparent": TRACE})
        caller = {"tenant": "t1", "subject": "alice", "hops": 1}
        assert isinstance(result.structured, dict)
        assert result.structured == {**caller, "trace": result.structured["trace"]}
        assert result.structured["trace"].split("-")[1] == TRACE.split("-")[1]
        assert await here.doctor() == []


async def test_results_and_errors_arrive_whole(far: FarHost, link: Link) -> None:
    async with link(far.url) as here:
        picture = await here.call("picture")
        assert (picture.name, picture.output, picture.structured) == ("far.picture", "a dot", {"n": 2**70})
        assert picture.parts == ({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},)
        assert picture.metadata == {"kept": True}
        busy = await here.call("busy")
        assert (busy.status, busy.output, busy.retry_after_s) == (ToolStatus.TOOL_ERROR, "busy", 3.0)


async def test_calls_share_a_connection(far: FarHost, link: Link) -> None:
    async with Proxy().to(int(far.port)) as proxy, link(f"http://127.0.0.1:{proxy.port}") as here:
        for _ in range(5):
            assert (await here.call("who")).status is ToolStatus.SUCCESS
        assert proxy.connections == 2  # one has the stream of the catalog


async def test_progress_is_passed_on_and_a_cancelled_call_is_cancelled_there(far: FarHost, link: Link) -> None:
    reports: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with link(far.url) as here:
        call = asyncio.create_task(here.call("slow", report=lambda *said: reports.put_nowait(said)))
        async with asyncio.timeout(PATIENCE_S):
            assert await reports.get() == (1.0, 2.0, "half")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while not (far.folder / "cancelled").exists():  # noqa: ASYNC110  a file of another process
                await asyncio.sleep(0.01)
        late = await here.call("slow", deadline=loop.time() + 0.3)
        assert late.status is ToolStatus.TIMEOUT


async def test_an_approval_is_decided_where_the_tool_is(far: FarHost, link: Link) -> None:
    async with link(far.url) as here:
        asked = await here.call("secret")
        assert asked.status is ToolStatus.DENIED
        ticket = asked.metadata["approval"]["id"]  # type: ignore[index]
        async with httpx2.AsyncClient(base_url=far.url, headers={"X-API-Key": "root-key"}) as root:
            decided = await root.post(f"/v1/approvals/{ticket}", json={"decision": "approve"})
            assert decided.status_code == 200, decided.text
        approved = await here.call("secret", approval=ticket)
        assert (approved.status, approved.output) == (ToolStatus.SUCCESS, "42")


async def test_a_change_there_is_a_change_here(far: FarHost, link: Link) -> None:
    async with link(far.url) as here, httpx2.AsyncClient(base_url=far.url, headers={"X-API-Key": "root-key"}) as root:
        await root.post("/v1/providers/notes/disable")
        await here.until(lambda: not here.tools.catalog)
        assert await here.doctor() == [
            f"toolset 'far', host {far.url}: it lists no tools for this key; allow its agent a toolset there"
        ]
        await root.post("/v1/providers/notes/enable")
        await here.until(lambda: list(here.tools.catalog) == NAMES)


async def test_a_key_without_the_scope_delegate_calls_as_its_holder(far: FarHost, link: Link) -> None:
    async with link(far.url, "plain-key") as here:
        result = await here.call("who")
        assert isinstance(result.structured, dict)
        assert (result.structured["tenant"], result.structured["subject"]) == ("linked", "plain")
        [warning] = await here.doctor()
        assert "its key lacks the scope 'delegate'" in warning


async def test_a_wrong_key_is_named(far: FarHost, link: Link) -> None:
    async with link(far.url, "wrong-key") as here:
        assert list(here.tools.catalog) == []
        [warning] = await here.doctor()
        why = "it does not accept the key; set api_key of the toolset to a key of that host"
        assert warning == f"toolset 'far', host {far.url}: {why}"
