"""Each rule of the contract check finds the provider that breaks it, and nothing else in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
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
    Prompt,
    Resource,
    ToolCall,
    ToolDefinition,
    ToolError,
    prompt,
    resource,
    route,
    tool,
)
from toolplug.catalog.definition import Hosted
from toolplug.providers.routes import BoundRoute
from toolplug.providers.site import ProviderContext
from toolplug.testing import ContractBroken, check_provider
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


class Offers(FunctionProvider):
    """Keeps every rule with its prompts and resources; each bad one below differs in one thing."""

    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        await asyncio.sleep(0)
        return "Thank you."

    @prompt(complete={"name": ["Ann"]})
    def praise(self, name: str) -> str:
        """Praise somebody."""
        return f"Well done, {name}."

    @resource("greetings://first")
    async def first(self) -> str:
        """The first greeting."""
        return "Hello"

    @resource("greetings://by/{name}", complete={"name": lambda typed: [f"{typed}n"]})
    async def by(self, name: str) -> str:
        """A greeting."""
        return f"Hello, {name}"


PRAISE: Calls = {"praise": {"name": "Ann"}}
BY: Calls = {"greetings://by/{name}": {"name": "Ann"}}


class FailingPrompt(Offers):
    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        raise LookupError


class NoMessage(Offers):
    @prompt
    async def thank(self) -> int:  # type: ignore[override]
        """Thank somebody."""
        return 7


class Undescribed(Offers):
    @resource("greetings://first")
    async def first(self) -> str:
        return "Hello"


class FailingResource(Offers):
    @resource("greetings://by/{name}")
    async def by(self, name: str) -> str:
        """A greeting."""
        raise LookupError


class FailingCompletion(Offers):
    @prompt(complete={"name": lambda typed: [typed[0]]})
    def praise(self, name: str) -> str:
        """Praise somebody."""
        return f"Well done, {name}."


class DeafPrompt(FunctionProvider):
    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        return "Thank you."


class OneReader(Offers):
    reading = False

    @resource("greetings://first")
    async def first(self) -> str:
        """The first greeting."""
        if self.reading:
            raise RuntimeError
        self.reading = True
        try:
            await asyncio.sleep(0)
        finally:
            self.reading = False
        return "Hello"


class OpenPrompt(Offers):
    def prompts(self) -> Sequence[Prompt]:
        schema = {"type": "object", "properties": {}}
        return [*super().prompts(), Prompt(name="open", get=said, description="Say it.", schema=schema)]


def said(given: Mapping[str, object], context: CallContext) -> object:
    return "Fine."


class ChangingOffers(Offers):
    def resources(self) -> Sequence[Resource]:
        STARTS.append(1)
        return [
            *super().resources(),
            Resource(uri=f"tick://{len(STARTS)}", read=said, description="A tick."),
        ]


OFFER_ROWS = [
    (FailingPrompt, "offers", "example of prompt 'thank'"),
    (NoMessage, "offers", "example of prompt 'thank'"),
    (Undescribed, "descriptions", "resource 'greetings://first'"),
    (FailingResource, "offers", "example of resource 'greetings://by/{name}'"),
    (FailingCompletion, "completions", "completion of 'name' of prompt 'praise'"),
    (DeafPrompt, "cancellation", "prompt 'thank'"),
    (OneReader, "concurrency", "resource 'greetings://first'"),
    (OpenPrompt, "invalid-arguments", "prompt 'open' with an argument 'not_an_argument' that it does not have"),
    (ChangingOffers, "stable", "prompts() and resources()"),
]


@pytest.mark.parametrize(("make", "rule", "where"), OFFER_ROWS)
async def test_prompts_and_resources_are_checked_like_tools(
    make: type[FunctionProvider], rule: str, where: str
) -> None:
    examples: dict[str, Any] = {} if make is DeafPrompt else {"prompts": PRAISE, "resources": BY}
    with pytest.raises(ContractBroken) as caught:
        await check_provider(make, **examples, within_s=0.1 if make is DeafPrompt else 20)
    assert [item[:2] for item in caught.value.broken] == [(rule, where)]


async def test_prompts_and_resources_that_keep_every_rule_pass() -> None:
    await check_provider(Offers, prompts=PRAISE, resources=BY)
    await check_provider(Offers, uncalled=["praise", "greetings://by/{name}"])


async def test_what_takes_arguments_needs_an_example_and_an_example_something_that_is_offered() -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_provider(Offers, prompts={"blame": {}}, resources={"greetings://of/{name}": {}})
    assert [item[:2] for item in caught.value.broken] == [
        ("examples", "prompt 'praise'"),
        ("examples", "resource 'greetings://by/{name}'"),
        ("examples", "example 'blame'"),
        ("examples", "example 'greetings://of/{name}'"),
    ]
