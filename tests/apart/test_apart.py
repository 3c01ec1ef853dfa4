"""A provider in a process of its own does what it does in the host's, and its end is the end of no other."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.apart import large
from tests.apart.everything import DEEP, Everything, Tracer, UsesService, Wraps
from tests.apart.plain import Plain
from tests.apart.starting import provider_of, started, until

from toolplug import CallContext, ConfigError, Principal, ToolCall, ToolResult, open_host
from toolplug.apart.entries import apart_class
from toolplug.apart.limits import MAX_LINE
from toolplug.apart.provider import ApartProvider
from toolplug.catalog.call import Deadline, UserAnswer
from toolplug.errors import InvalidDefinition
from toolplug.execution.run import run
from toolplug.providers.registry import FunctionRegistry
from toolplug.testing.in_process import in_process_host

pytestmark = [pytest.mark.anyio, pytest.mark.process]

FILE = Path(__file__).parent / "everything.py"
APART = {"process": True}


def entry(name: str, **more: object) -> dict[str, object]:
    return {"type": f"{FILE}:{name}", "enabled": True, "run": APART, **more}


ANSWERS = [
    ("echo", {"value": DEEP}),
    ("echo", {"value": {"a": [DEEP, 1.5]}}),
    ("echo", {"value": None}),
    ("echo", {"value": 7}),
    ("nested", {"inner": {"size": 1, "tags": ["a"]}}),
    ("nested", {"inner": {"size": "much"}}),
    ("rich", {}),
    ("blocking", {}),
    *(("fail", {"how": how}) for how in ("tool_error", "unavailable", "crash", "exit", "other")),
    ("note", {"text": "one"}),
    ("note", {"text": "two"}),
    ("ask", {}),
    ("chain", {"depth": 3}),
    ("chain", {"depth": 30}),
    ("no_such_tool", {}),
]


@pytest.mark.requirement("I36-apart")
async def test_its_answers_offers_and_hints_are_those_of_the_host_s_process() -> None:
    principal = Principal("ada", "acme", frozenset({"tools:call"}))
    reports: list[object] = []

    async def ask(question: str, schema: Mapping[str, object]) -> UserAnswer:
        return UserAnswer("accept", {question: len(schema)})

    def report(*given: object) -> None:
        reports.append(given)

    async def answers(registry: FunctionRegistry) -> list[ToolResult]:
        context = CallContext(principal, ask=ask, report=report, trace_context={"traceparent": "00-1"}, request_id="r1")
        return [await registry.execute(ToolCall("c", name, given), context) for name, given in ANSWERS]

    def offers(registry: FunctionRegistry) -> list[object]:
        generation = registry.running()["made"]
        shown = [
            item.fields for item in (*generation.offering.prompts.values(), *generation.offering.resources.values())
        ]
        listed = [(tool, tool.hints, tool.title, tool.timeout_s, tool.ref) for tool in registry.catalog.definitions()]
        named = [(each.name, *rest) for each, *rest in listed]
        routes = [(each.method, each.path, each.public, each.scope) for each in generation.routes]
        return [registry.catalog.render("mcp"), named, shown, routes, generation.hooks.names]

    async with started(Everything) as registry:
        apart, apart_offers = await answers(registry), offers(registry)
        apart_reports = [*reports]
    reports.clear()
    async with FunctionRegistry({"made": Everything()}) as registry:
        assert apart == await answers(registry)
        assert apart_offers == offers(registry)
    assert apart_reports == reports == [(1, 2, "asked"), (2, 2, "answered")]


@pytest.mark.requirement("I36-apart")
async def test_prompts_resources_and_completions_run_there() -> None:
    context = CallContext(Principal("ada", "acme"))

    async def asked(registry: FunctionRegistry) -> list[object]:
        offering = registry.running()["made"].offering
        plans = [
            (offering.prompts["greet"].plan, {"who": "Bo"}),
            (offering.prompts["praise"].plan, {"name": "tea"}),
            (offering.prompts["greet"].completion, {"argument": "who", "value": "B", "context": {}}),
            (offering.prompts["praise"].completion, {"argument": "name", "value": "t", "context": {}}),
            *(
                (offering.templates["things://{name}"].plan, {"uri": f"things://{name}", "variables": {"name": name}})
                for name in ("cup", "text")
            ),
            (offering.resources["things://picture"].plan, {"uri": "things://picture", "variables": {}}),
        ]
        return [
            (await run(plan, ToolCall("c", plan.ref.name, given), context)).structured
            for plan, given in plans
            if plan is not None
        ]

    async with started(Everything) as registry:
        apart = await asked(registry)
    async with FunctionRegistry({"made": Everything()}) as registry:
        assert apart == await asked(registry)
    assert {"completion": {"values": ["B-acme"], "total": 1, "hasMore": False}} in apart


@pytest.mark.requirement("I36-apart")
async def test_routes_streams_hooks_and_metrics_work_as_in_the_host_s_process(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolplug.providers")
    config = {"store": "memory://", "providers": {"made": entry("Everything", public_routes=True, key="s3cr3t-word")}}
    config["providers"]["around"] = entry("Around")  # type: ignore[index]
    keeper = Principal("ada", "acme", frozenset({"tools:call", "tools:read", "things:read", "admin"}))
    async with in_process_host(config, principals=[keeper]) as served:
        ada = served.callers["ada"]
        thing = (await ada.client.get("/v1/things/5?q=1")).json()
        assert thing["number"], thing["tenant"] == (5, "acme")
        assert (thing["subject"], thing["query"], thing["current"]) == ("ada", {"q": "1"}, "acme")
        assert thing["authorization"] is None
        assert (await served.nobody.get("/v1/things/5")).status_code == 401
        sent = await served.nobody.post("/v1/open", content=b"y" * 900_000, headers={"authorization": "own"})
        assert (sent.status_code, sent.json()) == (201, {"size": 900_000, "authorization": "own"})
        assert len((await ada.client.get("/v1/stream?size=200")).content) == 2_000_000
        assert [
            (await ada.client.get(path)).status_code for path in ("/v1/broken?how=crash", "/v1/broken?how=json")
        ] == [
            500,
            500,
        ]
        assert (await ada.client.get("/v1/word")).text == "milk"

        who = (await ada.call("who")).structured
        assert isinstance(who, dict)
        assert (who["tenant"], who["current"], who["left"]) == ("acme", "acme", True)
        assert who["pid"] != os.getpid()
        assert not any("s3cr3t" in text for text in (who["argv"], *who["environment"]))
        assert not {"PYTEST_CURRENT_TEST", "USER"} & {*who["environment"]}
        assert (await ada.call("rich")).metadata["changed"] == "call"
        assert (await ada.call("echo", value="forbidden")).output.endswith("hook: not for acme")
        seen = (await ada.call("list_seen")).structured
        assert {"made active", "around active", "rich success True", "echo denied True"} <= {*cast("list[str]", seen)}
        (await ada.call("echo", value=1))
        wanted = 'everything_calls_total{tool="echo"} 1.0'
        metrics: list[str] = []
        async with asyncio.timeout(10):
            while wanted not in metrics:
                metrics = (await served.client.get("/metrics")).text.splitlines()
        made = served.host.registry.running()["made"]
        assert [item.message for item in await made.diagnosis()] == ["the shop is closed"]
        (slow,) = await served.host.registry.running()["around"].diagnosis()
        assert slow.message == (
            "each call of the host waits for its process: it has after_call, before_call, change_result"
        )
    lines = [record.getMessage() for record in caplog.records if record.name == "toolplug.providers.made"]
    assert "everything is started" in lines
    assert "with the key ***" in lines


@pytest.mark.requirement("I36-apart")
@pytest.mark.parametrize(
    ("edge", "status", "code"), [({}, 413, "body_too_large"), ({"body_memory": "1MiB"}, 429, "quota_exceeded")]
)
async def test_a_body_over_a_limit_is_refused_though_its_length_was_not_declared(
    edge: dict[str, object], status: int, code: str
) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield b"y" * 65_536

    entries = {"made": entry("Everything", public_routes=True)}
    config = {"store": "memory://", "http": {"edge": edge}, "providers": entries}
    async with in_process_host(config) as served, asyncio.timeout(60):
        sent = await served.nobody.post("/v1/open", content=endless())
        assert (sent.status_code, sent.json()["error"]["code"]) == (status, code)
        # The handler is ended, and the process goes on.
        assert (await served.nobody.post("/v1/open", content=b"y")).json()["size"] == 1


@pytest.mark.requirement("I36-apart")
async def test_a_call_that_had_begun_is_unknown_another_one_unavailable_and_the_process_runs_again() -> None:
    async with started(Everything) as registry:
        provider = provider_of(registry)
        before = await registry.call("echo", value="tea")
        assert before.output == "tea"
        await until(lambda: _count(provider) == 1)
        dying, waiting = registry.call("die"), registry.call("hang")
        unknown = await asyncio.gather(waiting, dying)
        assert {(each.status, each.metadata["code"]) for each in unknown} == {("tool_error", "outcome_unknown")}
        gone = await registry.call("echo", value="tea")
        assert (gone.status, gone.metadata["code"]) == ("unavailable", "restarting")
        record = registry.records()[0]
        assert (record.state, record.reason[:11]) == ("restarting", "its process")
        await until(lambda: not provider.restarting)
        assert registry.records()[0].state == "active"
        assert (await registry.call("echo", value="tea")).output == "tea"
        families = {each.name: each for each in provider.collectors()[0].collect()}
        assert families["toolplug_apart_restarts"].samples[0].value == 1
        # What the first process had counted is not lost.
        await until(lambda: _count(provider) == 2)


def _count(provider: ApartProvider) -> float:
    families = {each.name: each for each in provider.collectors()[0].collect()}
    found = families.get("everything_calls")
    return 0.0 if found is None else sum(each.value for each in found.samples if each.name.endswith("_total"))


@pytest.mark.requirement("I36-apart")
async def test_a_call_that_misses_its_deadline_ends_the_process_one_that_ends_does_not() -> None:
    async with started(Everything) as registry:
        provider = provider_of(registry)
        loop = asyncio.get_running_loop()

        async def call(how: str) -> ToolResult:
            context = CallContext(deadline=Deadline.after(loop.time(), 0.3))
            return await registry.execute(ToolCall("c", "hang", {"how": how}), context)

        assert (await call("wait")).status == "timeout"
        await asyncio.sleep(0)
        assert not provider.restarting
        assert (await call("block")).status == "timeout"
        # The event loop of this process was never held up.
        assert (await registry.call("echo", value="tea")).status in ("success", "timeout", "tool_error", "unavailable")
        await until(lambda: provider.restarting)
        await until(lambda: not provider.restarting)
        assert (await registry.call("echo", value="tea")).output == "tea"


@pytest.mark.requirement("I36-apart")
async def test_a_call_takes_no_task_of_the_host_and_counts_until_it_has_ended_there(tmp_path: Path) -> None:
    async with started(Everything) as registry:
        plan = dict(registry.running()["made"].catalog.items())["hang"].plan
        began, still = tmp_path / "began", list[int]()

        async def call() -> None:
            try:
                await registry.call("hang", how="wait", mark=str(began))
            finally:
                still.append(plan.counters.in_flight)

        tasks = asyncio.all_tasks()
        calling = asyncio.create_task(call())
        await until(began.exists)
        assert asyncio.all_tasks() - tasks == {calling}
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        # When its caller had gone, the process had not ended it yet; it is asked to, and answers.
        assert still == [1]
        await until(lambda: plan.counters.in_flight == 0)
        assert not provider_of(registry).restarting
        assert (await registry.call("echo", value="tea")).output == "tea"


@pytest.mark.requirement("I36-apart")
async def test_a_long_result_is_cut_as_in_the_host_s_process() -> None:
    async with started(Everything) as registry:
        for name in ("large", "data"):
            result = await registry.call(name, size=3_000_000)
            assert result.status == "success"
            assert cast("Any", result.metadata["truncated"])["bytes"] >= 3_000_000
            assert len(result.output) < 1_100_000


@pytest.mark.requirement("I36-apart")
@pytest.mark.parametrize(
    ("kind", "what"),
    [(Tracer, "call_tracers"), (UsesService, "site.service"), (Wraps, "the wrapper before_call")],
)
async def test_what_cannot_cross_a_process_is_incompatible_by_its_name(kind: type, what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        async with started(kind):
            pass
    problem = raised.value.problems[0]
    assert problem.code == "incompatible"
    assert f"{what} cannot be used from a process of its own" in problem.message


@pytest.mark.requirement("I36-apart")
async def test_settings_are_checked_in_the_process_with_their_lines_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    text = f"providers:\n  made:\n    type: {FILE}:Everything\n    enabled: true\n    run: {{process: true}}\n"
    file.write_text(f"{text}    word: [1]\n    colour: red\n")
    with pytest.raises(ConfigError) as raised:
        async with open_host(file):
            pass
    assert [(each.line, each.path, each.message) for each in raised.value.problems] == [
        (6, "providers.made.word", "should be text, not a list"),
        (7, "providers.made.colour", "unknown key 'colour'"),
    ]


@pytest.mark.requirement("I36-apart")
async def test_a_reload_replaces_the_process_and_an_unchanged_entry_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    text = f"providers:\n  made:\n    type: {FILE}:Everything\n    enabled: true\n    run: {{process: true}}\n"
    text = f"store: memory://\n{text}"
    file.write_text(text)
    me = Principal("ada", scopes=frozenset({"tools:call", "operator"}))
    async with open_host(file) as host:

        async def pid() -> int:
            result = await host.executor_for(me).call("who")
            return cast("dict[str, int]", result.structured)["pid"]

        first = await pid()
        await host.reload(by=me)
        assert await pid() == first
        file.write_text(f"{text}    word: tea\n")
        await host.reload(by=me)
        assert await pid() != first
        with suppress(ProcessLookupError):
            async with asyncio.timeout(10):
                while True:
                    os.kill(first, 0)
                    await asyncio.sleep(0.02)


@pytest.mark.requirement("I36-apart")
def test_what_no_process_can_import_is_refused() -> None:
    class Local(Plain):
        pass

    with pytest.raises(InvalidDefinition, match="give a class at the top of a module"):
        apart_class(Local, {}, "made")


async def test_lists_metrics_and_messages_longer_than_a_message_cross() -> None:
    made = {"type": f"{large.__file__}:Large", "enabled": True, "run": {"process": True}}
    async with in_process_host({"store": "memory://", "providers": {"made": made}}) as served:
        told: list[tuple[object, ...]] = []
        tools = served.host.executor_for(Principal("ada", scopes=frozenset({"tools:call"})))
        assert (await tools.call("tool_699")).output == "tool_699"
        context = CallContext(report=lambda *given: told.append(given))
        assert (await tools.call("report", {}, context)).output == "reported"
        assert told == [(1, 2, "y" * MAX_LINE), (3, None, "a?")]
        provider = served.host.registry.running()["made"].provider
        await until(lambda: any(s.labels["name"] == "reported" for s in _samples(provider, "large_series")))
        assert len(_samples(provider, "large_series")) == 6_001
        assert not provider.restarting


def _samples(provider: Any, name: str) -> list[Any]:
    (collector,) = provider.collectors()
    return [sample for family in collector.collect() if family.name == name for sample in family.samples]
