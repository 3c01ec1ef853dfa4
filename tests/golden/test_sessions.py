"""Sessions: how they begin and end, the tools that applications lend, their streams and their calls."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from tests.golden.conftest import DESK, KEYS, Opened
from tests.golden.wire import Talk, Wire

pytestmark = pytest.mark.anyio

ROWS = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}
CAPABILITIES = [
    {"type": "visualization", "level": "advanced", "resources": ["plots"]},
    {"type": "storage", "level": "basic"},
]


def tool(name: str, **more: object) -> dict[str, object]:
    """A good definition."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": ROWS, **more}


class Session(NamedTuple):
    """A session as its application sees it."""

    wire: Wire
    code: str
    token: str

    @property
    def place(self) -> str:
        return f"/api/sessions/{self.code}"

    async def send(self, path: str, body: object = None, **headers: str) -> Talk:
        """POST as the application."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.wire.post(f"{self.place}/{path}", self.token, body, headers=named)

    async def register(self, *tools: object, **more: object) -> Talk:
        return await self.send("register-tools", {"pluginType": "table", "tools": tools, **more})

    async def update(self, reason: str = "changed", if_match: str | None = None, **changes: object) -> Talk:
        headers = {} if if_match is None else {"if_match": if_match}
        return await self.send("update-tools", {"toolUpdates": changes, "reason": reason}, **headers)

    async def call(self, name: str, arguments: object = None, **more: object) -> Talk:
        """Call as alice."""
        body = {"id": "c1", "tool": name, "arguments": arguments or {}, **more}
        return await self.wire.post(f"{self.place}/tool-calls", "alice-key", body)

    async def answer(self, request: str, **body: object) -> Talk:
        return await self.send("tool-results", {"id": request, **body})


async def session_of(wire: Wire, *tools: object, body: object = None) -> Session:
    """A new session, with these tools where there are any."""
    created: dict[str, Any] = (await wire.post("/api/sessions", "alice-key", body)).json()
    session = Session(wire, created["code"], created["pluginToken"])
    if tools:
        await session.register(*tools)
    return session


async def test_the_life_of_a_session(opened: Opened) -> None:
    async with opened("session_life") as wire:
        wire.title("Create")
        session = await session_of(wire)
        await session_of(wire, body={"pluginType": "table", "ttlSeconds": 60})
        for body in (
            {"ttlSeconds": 0},
            {"ttlSeconds": 86_401},
            {"ttlSeconds": 1.5},
            {"pluginType": ""},
            {"more": 1},
            [],
        ):
            await wire.post("/api/sessions", "alice-key", body)
        await wire.get("/api/sessions", "alice-key")
        await wire.get("/api/sessions", "bob-key")
        wire.title("Read")
        metadata = await wire.get(f"{session.place}/metadata", "alice-key")
        await wire.get(f"{session.place}/metadata", session.token, headers={"if-none-match": metadata.header("etag")})
        await wire.ask("HEAD", f"{session.place}/metadata", "alice-key")
        for version in ("2.0.0", "2", "1.0.0", "*"):
            await wire.get(f"{session.place}/metadata", "alice-key", headers={"accept-version": version})
        await session.send("heartbeat")
        for query in ("", "?after=0", "?after=none", "?after=99999999"):
            await wire.get(f"{session.place}/events{query}", "alice-key")
        wire.title("Whose it is")
        for code in ("abc", "ABC12345", "abcdefgh", "ABCDEFGH"):
            await wire.get(f"/api/sessions/{code}/metadata", "alice-key")
        for by in (None, "bob-key", "wrong", "caller-key"):
            await wire.get(f"{session.place}/metadata", by)
        for path in ("register-tools", "update-tools", "tool-results", "heartbeat"):
            await wire.post(f"{session.place}/{path}", "alice-key", {})
            await wire.post(f"{session.place}/{path}", body={})
        await wire.post(f"{session.place}/tool-calls", session.token, {"tool": "add"})
        await wire.get(f"{session.place}/events", session.token)
        await wire.ask("DELETE", session.place, session.token)
        other = await session_of(wire)
        await wire.get(f"{session.place}/metadata", other.token)
        await wire.get("/v1/tools", session.token)
        wire.title("End")
        await wire.ask("DELETE", session.place, "bob-key")
        for _ in range(2):
            await wire.ask("DELETE", session.place, "alice-key")
        await wire.get(f"{session.place}/metadata", "alice-key")
        await wire.get(f"{session.place}/stream", "alice-key")
        await wire.get(f"/v1/tools?session={session.code}", "alice-key")
        await session.send("heartbeat")
        await wire.get("/api/sessions", "alice-key")


async def test_the_tools_of_a_session(opened: Opened) -> None:
    async with opened("session_tools", KEYS + DESK + "sessions: {max_updates_per_minute: 1000}\n") as wire:
        wire.title("Register")
        session = await session_of(wire)
        await session.update(added=[tool("early")])
        await session.register(
            tool("add", outputSchema=ROWS, annotations={"readOnlyHint": True, "title": "Adds"}, requires=["storage"]),
            {"name": "bare"},
            tool("draw", requires=[{"type": "visualization", "level": "basic"}]),
            tool("crunch", requires=["computation"]),
            tool("plot", requires=[{"type": "storage", "level": "enterprise"}]),
            tool("echo"),
            tool("add"),
            {"description": "nameless"},
            "text",
            tool("bad name"),
            {"name": "broken", "inputSchema": {"type": "text"}},
            {"name": "list", "inputSchema": []},
            tool("files/read.all"),
            capabilities=CAPABILITIES,
            environment={"theme": "dark", "rows": [1, 2]},
        )
        await wire.get(f"{session.place}/metadata", "alice-key")
        for form in ("chat", "responses", "anthropic", "mcp"):
            await wire.get(f"/v1/tools?session={session.code}&format={form}&agent=nobody", "alice-key")
        wire.title("Refused registrations")
        await session.register(tool("add"), {"name": "bad name"}, atomic=True)
        await session.register({"name": "bad name"})
        await session.register(tool("add"), capabilities=[{"type": "flying", "level": "basic"}])
        await session.register(tool("add"), capabilities=[{"type": "storage", "level": "expert"}])
        for body in ({}, {"tools": []}, {"pluginType": "table"}, {"pluginType": "table", "tools": {}}):
            await session.send("register-tools", body)
        await session.send("register-tools", b"{")
        wire.title("Update")
        await session.update(added=[tool("sub")], removed=["bare"], modified=[tool("draw", description="Draws.")])
        await session.update(added=[])
        await session.update(modified=[tool("sub")])
        await session.update(added=[tool("mul")], if_match="1")
        await session.update(added=[tool("mul")], if_match="none")
        await session.update(added=[tool("mul")], if_match="*")
        await session.update(added=[tool("add")])
        await session.update(removed=["nothing"])
        await session.update(modified=[tool("nothing")])
        await session.update(added=[{"name": "bad name"}])
        await session.update(added=[tool("div")], removed=["div"])
        await session.update(added=[tool("echo")])
        for body in ({}, {"toolUpdates": []}, {"toolUpdates": {"more": []}}, {"toolUpdates": {}, "reason": "x" * 1001}):
            await session.send("update-tools", body)
        wire.title("Register again")
        await session.register(tool("add"), tool("new"))
        await session.register()
        await wire.get(f"{session.place}/metadata", session.token)
        await wire.get(f"{session.place}/events", "alice-key")


async def test_limits_of_sessions(opened: Opened) -> None:
    limits = "sessions: {max_tools: 2, max_updates_per_minute: 2, max_sessions: 2, max_waiting_calls: 1, ttl: 60s}\n"
    async with opened("session_limits", KEYS + DESK + limits) as wire:
        session = await session_of(wire)
        await session.register(tool("one"), tool("two"), tool("three"))
        await session.register(tool("one"), tool("two"))
        await session.update(added=[tool("three")])
        await session.update(removed=["two"])
        await session.update(removed=["one"])
        await wire.post("/api/sessions", "alice-key")
        await wire.post("/api/sessions", "alice-key")
        async with wire.stream(f"{session.place}/stream", session.token) as application:
            await application.until("plugin-status")
            first = asyncio.create_task(session.call("one", {"rows": 1}))
            request = await application.until("tool-request")
            wire.transcript.number(request["id"], "request")
            await session.call("one", {"rows": 2})
            await session.answer(request["id"], result=1)
            await first


@pytest.mark.slow
async def test_a_session_that_expires(opened: Opened) -> None:
    async with opened("session_expiry", KEYS + "sessions: {ttl: 2s}\n") as wire:
        session = await session_of(wire)
        await wire.get(f"{session.place}/stream", "alice-key")
        await wire.get(f"{session.place}/metadata", "alice-key")
        await session.send("heartbeat")
        await wire.ask("DELETE", session.place, "alice-key")


@pytest.mark.slow
async def test_the_streams_of_a_session(opened: Opened) -> None:
    async with opened("session_streams", KEYS + DESK + "sessions: {grace: 3050ms}\n") as wire:
        wire.title("A client and the application")
        session = await session_of(wire, tool("add"), tool("slow"))
        place = f"{session.place}/stream"
        await wire.ask("HEAD", place, "alice-key")
        await wire.get(place)
        await wire.get(place, "bob-key")
        async with wire.stream(place, "alice-key") as client:
            connected = await client.until("connected")
            assert connected["revision"] == 1
            async with wire.stream(place, session.token) as application:
                await application.until("plugin-status")
                await client.until("plugin-status")
                calling = asyncio.create_task(session.call("add", {"rows": 1}))
                request = await application.until("tool-request")
                wire.transcript.number(request["id"], "request")
                await session.answer(request["id"], result={"sum": 1})
                await calling
                await session.update("more", added=[tool("sub")])
                await client.until("tool-availability-update")
                await application.until("tool-availability-update")
                late = asyncio.create_task(session.call("slow", {"rows": 1}, timeoutMs=300))
                request = await application.until("tool-request", 2)
                wire.transcript.number(request["id"], "request")
                await late
                await application.until("tool-cancelled")
                await session.answer(request["id"], result=1)
            await client.until("plugin-status", 2)
            await session.call("add", {"rows": 2})
            await wire.get(f"{session.place}/metadata", "alice-key")
            await wire.ask("DELETE", session.place, "alice-key")
            await client.until("error")
        wire.title("A client that comes back")
        session = await session_of(wire, tool("add"))
        place = f"{session.place}/stream"
        await session.update("one", added=[tool("one")])
        log = await wire.get(f"{session.place}/events", "alice-key")
        positions = [event["id"] for event in log.json()["events"]]
        await session.update("two", added=[tool("two")])
        for last in (positions[-1], 99_999_999, "none"):
            async with wire.stream(place, "alice-key", last_event_id=str(last)) as client:
                while "\n\n" not in client.text:
                    await asyncio.sleep(0)
                if last == positions[-1]:
                    await client.until("tool-availability-update")


async def test_calls_of_a_sessions_tools(opened: Opened) -> None:
    async with opened("session_calls") as wire:
        wire.title("Without an application")
        alone = await session_of(wire, tool("add"))
        await alone.call("add", {"rows": 1}, timeoutMs=20)
        wire.title("Results")
        session = await session_of(wire, tool("add"), tool("bare"))
        calls = f"{session.place}/tool-calls"
        async with wire.stream(f"{session.place}/stream", session.token) as application:
            await application.until("plugin-status")
            bodies = (
                {"result": 0},
                {"result": None},
                {"result": ""},
                {"result": [False, {"ü": 1.5}]},
                {"error": "no rows"},
                {"error": {"message": "no rows", "code": 7}},
            )
            for number, body in enumerate(bodies, start=1):
                calling = asyncio.create_task(session.call("add", {"rows": number}))
                await answered(application, number, session, body)
                await calling
            wire.title("Refused results")
            calling = asyncio.create_task(session.call("add", {"rows": 7}))
            request = (await application.until("tool-request", 7))["id"]
            wire.transcript.number(request, "request")
            for body in ({}, {"result": 1, "error": "x"}, {"error": None}, {"error": 1}, {"result": 1, "total": 2}):
                await session.answer(request, **body)
            await session.answer("none", result=1)
            await session.send("tool-results", {"result": 1})
            await session.answer(request, progress=0.5, total=1, message="half")
            await session.send("tool-results", {"requestId": request, "result": 1})
            await calling
            await session.answer(request, result=2)
            wire.title("Progress in a stream")
            body = {"id": "c1", "name": "add", "arguments": {"rows": 8}, "session": session.code}
            streamed = {"method": "POST", "body": body, "accept": "text/event-stream"}
            async with wire.stream("/v1/tool-calls", "alice-key", **streamed) as running:
                request = (await application.until("tool-request", 8))["id"]
                wire.transcript.number(request, "request")
                await session.answer(request, progress=1, total=2, message="half")
                await running.until("progress")
                await session.answer(request, result="done")
                await running.until("result")
            wire.title("Queued calls")
            queued = (await session.call("add", {"rows": 9}, wait=False)).json()["id"]
            wire.transcript.number(queued, "call")
            await application.until("tool-request", 9)
            await wire.get(f"{calls}/{queued}", "alice-key")
            await answered(application, 9, session, {"result": 9})
            await wire.get(f"{calls}/{queued}", "alice-key")
            await wire.get(f"{calls}/{queued}", "bob-key")
            await wire.get(f"{calls}/{queued}", "caller-key")
            await wire.get(f"{calls}/none", "alice-key")
        wire.title("Other calls")
        await session.call("echo", {"text": "of the desk"})
        await session.call("nothing_such")
        await session.call("no.such")
        await session.call("add", {"rows": "many"})
        await wire.post(calls, "alice-key", {"requestId": "c1", "tool": "echo", "args": {"text": "x"}})
        for body in (
            {},
            {"tool": ""},
            {"tool": 1},
            {"name": "add"},
            {"tool": "add", "arguments": []},
            {"tool": "add", "wait": 1},
        ):
            await wire.post(calls, "alice-key", body)


async def answered(application: Talk, number: int, session: Session, body: dict[str, object]) -> None:
    """Answer the application's request of this number."""
    request = (await application.until("tool-request", number))["id"]
    session.wire.transcript.number(request, "request")
    await session.answer(request, **body)
