"""An application, its callers and its watchers at a real host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from tests.client.fixtures import QUICK, Row, waited, waiting
from tests.client.scripted_host import WAIT_S
from tests.http.conftest import ALICE, BOB, config, package, sample_package, settings
from tests.http.served import served
from tests.kept_port import kept_port

from toolplug import CallContext, open_host
from toolplug.client import (
    Application,
    Capability,
    Environment,
    HostRefused,
    SessionOver,
    Snapshot,
    StatusChanged,
    ToolsChanged,
    watch,
)
from toolplug.client.events import Change
from toolplug.http import create_app

__all__ = ["config", "package", "sample_package"]

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def url(sample_package: None) -> Iterator[str]:
    """A served host with the sample provider and API keys."""
    host = open_host(settings(), environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def alice(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(base_url=url, headers=ALICE, timeout=WAIT_S) as client:
        yield client


def table(url: str, **options: Any) -> Application:
    return Application(url, **{"plugin_type": "table", "api_key": "alice-key", "backoff": QUICK, **options})


async def called(client: AsyncClient, code: str, name: str, **body: Any) -> dict[str, Any]:
    answered = await client.post("/v1/tool-calls", json={"name": name, "session": code, "arguments": {}, **body})
    return answered.json()


async def listed(client: AsyncClient, code: str) -> list[str]:
    tools = (await client.get("/v1/tools", params={"session": code})).json()["tools"]
    return [tool["function"]["name"] for tool in tools]


@pytest.mark.requirement("C-12-client", "DYN-US-register", "DYN-AC-1")
async def test_a_lent_function_is_listed_beside_the_hosts_tools_and_called_like_them(
    url: str, alice: AsyncClient
) -> None:
    app = table(url)

    @app.tool
    async def add_rows(rows: list[Row], context: CallContext) -> Row:
        """Add rows."""
        return rows[-1]

    async with app:
        names = await listed(alice, app.code)
        assert names[-1] == "add_rows"
        assert "echo" in names
        answer = await called(alice, app.code, "add_rows", id="c1", arguments={"rows": [{"name": "otter"}]})
        assert (answer["call_id"], answer["status"], answer["structured"]) == (
            "c1",
            "success",
            {"name": "otter", "size": 1},
        )
        wrong = await called(alice, app.code, "add_rows", arguments={"rows": 1})
        assert wrong["status"] == "invalid_arguments"
        code = app.code
    assert (await alice.get(f"/api/sessions/{code}/metadata")).status_code == 410


@pytest.mark.requirement("DYN-plugin-diff", "DYN-AC-6", "DYN-US-update", "DYN-US-notify")
async def test_a_watcher_hears_what_an_application_changes_and_nothing_where_nothing_changes(
    url: str, alice: AsyncClient
) -> None:
    app = table(url)

    @app.tool
    async def describe() -> str:
        """Describe the table."""
        return "a table"

    async def select(row: int) -> None:
        """Select a row."""

    async with app, aclosing(watch(url, app.code, api_key="alice-key", backoff=QUICK)) as changes:
        snapshot = await anext(changes)
        assert isinstance(snapshot, Snapshot)
        assert [tool.name for tool in snapshot.tools] == ["describe"]
        app.add(select, reason="rows were added")
        await app.settled()
        app.replace([describe, select], reason="nothing")
        await app.settled()
        app.remove("describe", reason="the table was closed")
        await app.settled()
        heard = [await anext(changes), await anext(changes)]
        while isinstance(heard[0], StatusChanged):  # the application's stream came after the watcher's
            heard = [heard[1], await anext(changes)]
        first, second = heard
        assert isinstance(first, ToolsChanged)
        assert isinstance(second, ToolsChanged)
        assert [(change.revision, change.reason) for change in (first, second)] == [
            (2, "rows were added"),
            (3, "the table was closed"),
        ]
        assert [tool.name for tool in snapshot.after(first).after(second).tools] == ["select"]
        metadata = (await alice.get(f"/api/sessions/{app.code}/metadata")).json()
        assert (metadata["revision"], [tool["name"] for tool in metadata["tools"]]) == (3, ["select"])


@pytest.mark.requirement("DYN-plugin-diff")
async def test_an_application_that_comes_back_finds_its_session_as_it_left_it(url: str, alice: AsyncClient) -> None:
    known: dict[str, Any] = {
        "plugin_type": "table",
        "capabilities": [Capability(type="storage", resources=({"rows": 2},))],
        "environment": Environment(version="2", context_info={"locale": "de"}),
        "backoff": QUICK,
    }

    async def describe() -> str:
        """Describe the table."""
        return "a table"

    async def select(row: int = 1) -> int:
        """Select a row."""
        return row

    first = Application(url, api_key="alice-key", keep=True, **known)
    first.add(describe)
    async with first:
        address = {"code": first.code, "token": first.token}
    for tools, revision in [([describe], 1), ([describe, select], 2), ([select], 3)]:
        app = Application.joining(url, **address, **known)
        app.replace(tools)
        async with app:
            metadata = (await alice.get(f"/api/sessions/{app.code}/metadata")).json()
            assert metadata["revision"] == revision
            assert [tool["name"] for tool in metadata["tools"]] == [tool.__name__ for tool in tools]
            answer = await called(alice, app.code, tools[-1].__name__)
            assert answer["status"] == "success"


@pytest.mark.requirement("I3-4-cancelled")
async def test_a_call_that_is_given_up_cancels_the_function(url: str, alice: AsyncClient) -> None:
    app = table(url)
    began, cancelled = waiting(app)

    async with app:
        while not began.is_set():  # a busy machine may need longer to hand it over
            answer = await called(alice, app.code, "wait", timeoutMs=200)
            assert answer["status"] == "timeout"
        await waited(cancelled)


@pytest.mark.requirement("I3-4-progress")
async def test_progress_reaches_the_caller(url: str, alice: AsyncClient) -> None:
    app, heard = table(url), asyncio.Event()

    @app.tool
    async def work(context: CallContext) -> str:
        context.report(1, 2, "half")
        await waited(heard)
        return "done"

    async with app, asyncio.timeout(WAIT_S):
        body = {"id": "c1", "name": "work", "session": app.code, "arguments": {}}
        async with alice.sse("/v1/tool-calls", method="POST", json=body) as events:
            async for event in events:
                if event.event == "progress":
                    assert event.json() == {"call_id": "c1", "progress": 1, "total": 2, "message": "half"}
                    heard.set()
                else:
                    assert '"output":"done"' in event.data


@pytest.mark.requirement("DYN-AC-5", "DYN-UX-errors")
async def test_what_the_host_does_not_take_is_named_and_the_rest_is_lent(url: str, alice: AsyncClient) -> None:
    app = table(url)

    @app.tool(requires=["storage"])
    async def save() -> None: ...

    @app.tool
    async def echo(text: str) -> str:
        return "ours"

    @app.tool
    async def describe() -> str:
        return "a table"

    async with app:
        assert set(app.refused) == {"save", "echo"}
        assert "storage" in app.refused["save"]
        assert (await called(alice, app.code, "describe"))["output"] == "a table"
        app.add(describe, reason="again")
        app.tool(name="select", requires=["messaging"])(echo)
        app.tool(name="whoami")(describe)
        app.tool(name="later")(describe)
        await app.settled()
        assert set(app.refused) == {"save", "echo", "select", "whoami"}
        assert (await called(alice, app.code, "later"))["output"] == "a table"


async def to_the_end(changes: AsyncGenerator[Change]) -> None:
    async for _ in changes:
        pass


async def test_a_session_that_somebody_ends_is_over_for_its_application(url: str, alice: AsyncClient) -> None:
    async with table(url) as app, aclosing(watch(url, app.code, api_key="alice-key", backoff=QUICK)) as changes:
        await anext(changes)
        await alice.delete(f"/api/sessions/{app.code}")
        with pytest.raises(SessionOver) as raised:
            await app.serve()
        assert raised.value.code == "session_ended"
        with pytest.raises(SessionOver):
            await to_the_end(changes)


@pytest.mark.requirement("I3-2-restart", "I3-5-python-client")
async def test_a_host_that_restarts_finds_its_applications_again_and_they_find_it(tmp_path: Path) -> None:
    kept = {"store": f"sqlite:///{tmp_path}/state.db", "providers": {}}

    def host(port: int) -> AbstractContextManager[int]:
        opened = open_host(kept, environ={})
        return served(opened, create_app(opened), port=port)

    async with AsyncExitStack() as stack:
        port = stack.enter_context(kept_port())
        url = f"http://127.0.0.1:{port}"
        with host(port):
            app = table(url, api_key=None)
            app.tool(name="ping")(ping)
            await stack.enter_async_context(app)
            changes = await stack.enter_async_context(aclosing(watch(url, app.code, backoff=QUICK)))
            await anext(changes)
        app.tool(name="again")(ping)
        with host(port):
            await app.settled()
            async with AsyncClient(base_url=url, timeout=WAIT_S) as client:
                assert (await called(client, app.code, "ping"))["output"] == "pong"
            heard = await anext(changes)
            while isinstance(heard, StatusChanged):
                heard = await anext(changes)
            assert isinstance(heard, ToolsChanged)
            assert [tool.name for tool in heard.updates.added] == ["again"]
            await stack.aclose()


async def ping() -> str:
    return "pong"


@pytest.mark.requirement("DYN-US-isolated", "DYN-AC-10")
async def test_another_tenant_sees_nothing_of_it(url: str) -> None:
    async with table(url) as app, AsyncClient(base_url=url, headers=BOB, timeout=WAIT_S) as bob:
        assert (await bob.get("/v1/tools", params={"session": app.code})).status_code == 404
        with pytest.raises(SessionOver):
            await anext(watch(url, app.code, api_key="bob-key", backoff=QUICK))


async def test_a_wrong_key_and_a_token_of_another_session_are_refused(url: str) -> None:
    with pytest.raises(HostRefused):
        async with table(url, api_key="wrong"):
            pass
    async with table(url) as one, table(url) as other:
        with pytest.raises(SessionOver):
            async with Application.joining(url, code=one.code, token=other.token, plugin_type="table", backoff=QUICK):
                pass
