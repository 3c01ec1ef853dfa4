"""Each rule of the contract check finds the provider that breaks it, and nothing else in it."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolplug import (
    CallContext,
    FunctionProvider,
    ToolCall,
    ToolDefinition,
    ToolError,
    route,
    tool,
)
from toolplug.catalog.definition import Hosted
from toolplug.providers.routes import BoundRoute
from toolplug.providers.site import ProviderContext
from toolplug.testing.broken_rule import ContractBroken
from toolplug.testing.provider_check import check_provider
from toolplug.testing.provider_rules.routes import TOKEN, answered_rules

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I2-9-check-provider")]

Calls = Mapping[str, Mapping[str, object]]
GREET: Calls = {"greet": {"name": "Ann"}}
SHARED = CollectorRegistry()
STARTS: list[int] = []


class Good(FunctionProvider):
    """Keeps every rule; each bad one below differs in one thing."""

    class Config(BaseModel):
        word: str = "Hello"

    @tool(read_only=True, stub="greeting")
    async def greet(self, name: str) -> str:
        """Greet somebody."""
        await asyncio.sleep(0)
        return f"{self.config.word}, {name}"

    @route("POST", "/v1/greetings/{name}")
    async def greeted(self, request: Request) -> object:
        return {"tenant": request.state.tenant}


def lists(*definitions: ToolDefinition) -> type[FunctionProvider]:
    """A provider that lists these and runs them all."""

    class Lister(FunctionProvider):
        def tools(self) -> Sequence[ToolDefinition]:
            return definitions

        async def execute(self, call: ToolCall, context: CallContext) -> object:
            return "done"

    return Lister


def named(name: str, **fields: Any) -> ToolDefinition:
    return ToolDefinition(name=name, **{"description": "Does it.", "parameters": CLOSED, **fields})


CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}


class NotAsync(FunctionProvider):
    def start(self, site: ProviderContext) -> None:  # type: ignore[override]
        """Not what a host awaits."""


class OneOnly(FunctionProvider):
    def __init__(self) -> None:
        self.greeted = Counter("greeted", "Greeted.", registry=SHARED)


class StartFails(FunctionProvider):
    async def start(self, site: ProviderContext) -> None:
        raise OSError("no such host")


class ClosesWhatItNeverOpened(FunctionProvider):
    async def start(self, site: ProviderContext) -> None:
        self.task = asyncio.create_task(asyncio.Event().wait())

    async def aclose(self) -> None:
        self.task.cancel()


class RoutesFail(FunctionProvider):
    def routes(self) -> Sequence[Route]:
        raise LookupError("no routes")


class Changing(FunctionProvider):
    def tools(self) -> Sequence[ToolDefinition]:
        STARTS.append(1)
        return [named("tick", description=f"Start {len(STARTS)}.")]


class LeavesThread(FunctionProvider):
    stop = threading.Event()

    async def start(self, site: ProviderContext) -> None:
        threading.Thread(target=self.stop.wait, name="forgotten", daemon=True).start()


class Refusing(Good):
    def can_execute(self, name: str) -> bool:
        return False


class Greedy(Good):
    def can_execute(self, name: str) -> bool:
        return True


class Fails(FunctionProvider):
    @tool
    async def greet(self, name: str) -> str:
        """Greet nobody."""
        raise ToolError("not today")


class Counted(BaseModel):
    count: int


class SaysAnother(FunctionProvider):
    @tool
    async def count(self) -> Counted:
        """Count."""
        return {"count": "many"}  # type: ignore[return-value]


class Deaf(FunctionProvider):
    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def aclose(self) -> None:
        self.released.set()

    @tool
    async def greet(self, name: str) -> str:
        """Greet, and listen to nobody who cancels."""
        try:
            for _ in range(10):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await self.released.wait()
        return name


class OneAtATime(FunctionProvider):
    busy = False

    @tool
    async def greet(self, name: str) -> str:
        """Greet one person at a time."""
        if self.busy:
            raise RuntimeError("two at once")
        self.busy = True
        try:
            await asyncio.sleep(0)
        finally:
            self.busy = False
        return name


class RouteFails(FunctionProvider):
    @route("GET", "/v1/greetings/{number:int}")
    async def one(self, request: Request) -> object:
        raise LookupError


class RouteReadsAnything(FunctionProvider):
    @route("PUT", "/v1/greetings")
    async def put(self, request: Request) -> object:
        return await request.json() if await request.body() else {}


class RouteAsks(FunctionProvider):
    @route("GET", "/v1/greetings")
    async def ask(self, request: Request) -> object:
        return Response(status_code=401)


class RouteHangs(FunctionProvider):
    @route("GET", "/v1/greetings")
    async def hang(self, request: Request) -> object:
        await asyncio.Event().wait()


class Measured(FunctionProvider):
    def given(self) -> Sequence[Collector]:
        raise LookupError("nothing counted")

    def collectors(self) -> Sequence[Collector]:
        return self.given()


class Raising(Collector):
    def collect(self) -> Sequence[Metric]:
        raise OSError("no disk")


class Labelled(Collector):
    def collect(self) -> Sequence[Metric]:
        family = GaugeMetricFamily("greetings_kept", "Kept.", labels=["provider"])
        family.add_metric(["mine"], 1)
        return [family]


def measures(*collectors: Collector) -> type[FunctionProvider]:
    class Measures(Measured):
        def given(self) -> Sequence[Collector]:
            return collectors

    return Measures


def gauge(name: str, text: str = "Kept.") -> Gauge:
    return Gauge(name, text, registry=None)


class NeedsOptions(FunctionProvider):
    @tool(stub="greeting", stub_options={"type": "object", "properties": {"a": {}}, "minProperties": 1})
    async def greet(self, name: str) -> str:
        """Greet somebody."""
        return name


OPEN = named("open", parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
EXTRA = "tool 'open' with an argument 'not_an_argument' that it does not have"
PATTERN = {**CLOSED, "properties": {"a": {"type": "string", "pattern": "(unclosed"}}}

ROWS = [
    (NotAsync, {}, "hooks", "class NotAsync"),
    (OneOnly, {}, "starts", "constructor"),
    (StartFails, {}, "starts", "start() and tools()"),
    (ClosesWhatItNeverOpened, {}, "closes", "aclose() before start()"),
    (RoutesFail, {}, "starts", "in a registry"),
    (lists(named("two words")), {"two words": {}}, "names", "tool 'two words'"),
    (lists(named("one"), named("one")), {"one": {}}, "names", "tool 'one'"),
    (lists(named("mute", description=" ")), {"mute": {}}, "descriptions", "tool 'mute'"),
    (lists(named("odd", parameters=PATTERN)), {"odd": {}}, "schemas", "parameters of tool 'odd'"),
    (lists(named("text", parameters={"type": "string"})), {"text": {}}, "schemas", "parameters of tool 'text'"),
    (lists(named("call", hosted=Hosted(("function",)))), {"call": {}}, "stubs", "tool 'call'"),
    (Changing, {"tick": {}}, "stable", "tools()"),
    (LeavesThread, {}, "leaves-nothing", "aclose()"),
    (Good, {}, "examples", "tool 'greet'"),
    (Good, {**GREET, "great": {}}, "examples", "example 'great'"),
    (Greedy, GREET, "can-execute", "any name"),
    (Fails, GREET, "calls", "example of tool 'greet'"),
    (SaysAnother, {"count": {}}, "output", "example of tool 'count'"),
    (lists(OPEN), {"open": {"a": "b"}}, "invalid-arguments", EXTRA),
    (Deaf, GREET, "cancellation", "tool 'greet'"),
    (OneAtATime, GREET, "concurrency", "tool 'greet'"),
    (RouteFails, {}, "routes", "route GET /v1/greetings/{number:int}"),
    (RouteReadsAnything, {}, "routes", "route PUT /v1/greetings"),
    (RouteAsks, {}, "routes", "route GET /v1/greetings"),
    (RouteHangs, {}, "routes", "route GET /v1/greetings"),
    (Measured, {}, "starts", "in a registry"),
    (measures(Raising()), {}, "collectors", "collector Raising"),
    (measures(gauge("kept"), gauge("kept")), {}, "collectors", "metric 'kept'"),
    (measures(gauge("keptNotes")), {}, "metric-names", "metric 'keptNotes'"),
    (measures(gauge("antwort_builtin_notes")), {}, "metric-names", "metric 'antwort_builtin_notes'"),
    (measures(gauge("kept", " ")), {}, "metric-names", "metric 'kept'"),
    (measures(gauge("wait_ms")), {}, "metric-names", "metric 'wait_ms'"),
    (measures(gauge("kept_total")), {}, "metric-names", "metric 'kept_total'"),
    (measures(gauge("kept_gauge")), {}, "metric-names", "metric 'kept_gauge'"),
    (measures(Labelled()), {}, "metric-names", "metric 'greetings_kept'"),
    (NeedsOptions, GREET, "stubs", "stub 'greeting' of tool 'greet'"),
]  # fmt: skip


class Blocking(FunctionProvider):
    @tool
    async def nap(self) -> str:
        """Hold the loop."""
        time.sleep(0.6)
        return "rested"


class Clinging(FunctionProvider):
    @tool
    async def cling(self) -> str:
        """Swallow each cancellation."""
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)


@pytest.mark.slow
async def test_a_tool_that_blocks_the_loop_is_named_with_its_line() -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_provider(Blocking, calls={"nap": {}}, within_s=5.0)
    (broken,) = caught.value.broken
    assert (broken.rule, broken.where) == ("blocks-the-loop", "tool 'nap'")
    assert f"{__file__}:{inspect.getsourcelines(Blocking)[1] + 4} in Blocking.nap" in broken.what


@pytest.mark.process
def test_the_check_of_a_tool_that_swallows_its_cancellation_names_it_and_ends() -> None:
    lines = [
        "import asyncio",
        "from tests.testing.test_check_provider import Clinging",
        "from toolplug.testing import check_provider",
        "asyncio.run(check_provider(Clinging, calls={'cling': {}}, within_s=0.2))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "cancellation: tool 'cling': still runs 0.2 s after its caller was cancelled" in done.stderr


NEVER_ENDING = (LeavesThread, Deaf, RouteHangs)
"""Waited for until the time is over; the others take none of it, however busy the machine is."""


async def broken_by(make: type[FunctionProvider], calls: Calls) -> list[tuple[str, str]]:
    within_s = 0.5 if make in NEVER_ENDING else 20.0
    with pytest.raises(ContractBroken) as caught:
        await check_provider(make, calls=calls, within_s=within_s)
    assert all(item.what and item.fix for item in caught.value.broken)
    return [(item.rule, item.where) for item in caught.value.broken]


@pytest.mark.parametrize(("make", "calls", "rule", "where"), ROWS)
async def test_a_provider_that_breaks_one_rule_is_told_this_rule_and_where(
    make: type[FunctionProvider], calls: Calls, rule: str, where: str
) -> None:
    assert await broken_by(make, calls) == [(rule, where)]


@pytest.mark.parametrize("settings", [{}, {"word": "Hi"}])
async def test_a_provider_that_keeps_every_rule_passes(settings: Mapping[str, object]) -> None:
    await check_provider(Good, settings=settings, calls=GREET)
    await check_provider(Good, settings=settings, uncalled=["greet"])


async def test_everything_that_is_wrong_is_told_at_once_each_with_its_place_and_a_fix() -> None:
    class Worse(OneAtATime):
        @route("GET", "/v1/greetings")
        async def fail(self, request: Request) -> object:
            raise LookupError

        def collectors(self) -> Sequence[Collector]:
            return [Raising()]

    with pytest.raises(ContractBroken) as caught:
        await check_provider(Worse, calls=GREET)
    assert str(caught.value).splitlines() == [
        "the contract is broken:",
        "concurrency: tool 'greet': of 20 calls at once 19 failed, the first with panic: internal error: builtin tool "
        '"greet" panicked; keep nothing of one call on the instance where another call finds it',
        "routes: route GET /v1/greetings: answers 500 to a request without a body; answer what the client did wrong "
        "with 400, 404 or 422",
        "collectors: collector Raising: collect() raised OSError: no disk; a scrape would lose its lines",
    ]


async def test_a_listed_tool_that_its_provider_refuses_is_told() -> None:
    assert await broken_by(Refusing, {}) == [
        ("examples", "tool 'greet'"),
        ("can-execute", "tool 'greet'"),
    ]


async def test_a_route_that_asks_nobody_who_he_is_is_told() -> None:
    async def open_to_all(request: Request) -> Response:
        return JSONResponse({})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({})(scope, receive, send)

    broken = await answered_rules(app, [BoundRoute("GET", "/v1/open", open_to_all)], within_s=20)
    assert [(item.rule, item.what) for item in broken] == [("route-auth", "answers 200 without credentials, not 401")]
    public = BoundRoute("GET", "/v1/open", open_to_all, public=True)
    assert await answered_rules(app, [public], within_s=20) == []
    assert TOKEN not in str(broken)
