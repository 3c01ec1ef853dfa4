"""What a provider does in a worker that has dialled in is what it does in the host's process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from shutil import copy

import pytest
from tests.apart.everything import Everything
from tests.apart.starting import until
from tests.apart.test_apart import ANSWERS
from tests.apart.worker_host import HERE, entry, served

from toolplug import CallContext, Principal, ToolCall
from toolplug.catalog.call import Deadline, UserAnswer
from toolplug.execution.run import run
from toolplug.providers.registry import FunctionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I36-worker")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a worker, with the files of the tests."""
    copy(HERE / "everything.py", tmp_path / "everything.py")
    return tmp_path


async def answers(registry: FunctionRegistry, reports: list[object]) -> list[object]:
    async def ask(question: str, schema: Mapping[str, object]) -> UserAnswer:
        return UserAnswer("accept", {question: len(schema)})

    def report(*given: object) -> None:
        reports.append(given)

    principal = Principal("ada", "acme", frozenset({"tools:call"}))
    context = CallContext(principal, ask=ask, report=report, trace_context={"traceparent": "00-1"}, request_id="r1")
    found: list[object] = [await registry.execute(ToolCall("c", name, given), context) for name, given in ANSWERS]
    offering = registry.running()["made"].offering
    plans = [
        (offering.prompts["greet"].plan, {"who": "Bo"}),
        (offering.prompts["praise"].plan, {"name": "tea"}),
        (offering.prompts["greet"].completion, {"argument": "who", "value": "B", "context": {}}),
        (offering.templates["things://{name}"].plan, {"uri": "things://cup", "variables": {"name": "cup"}}),
        (offering.resources["things://picture"].plan, {"uri": "things://picture", "variables": {}}),
    ]
    for plan, given in plans:
        assert plan is not None
        found.append((await run(plan, ToolCall("c", plan.ref.name, given), context)).structured)
    return found


async def test_answers_questions_progress_prompts_and_resources_are_those_of_the_host_s_process(folder: Path) -> None:
    here: list[object] = []
    there: list[object] = []
    async with FunctionRegistry({"made": Everything()}) as registry:
        wanted = await answers(registry, here)
    async with served(folder) as host:
        await host.start_worker(folder=folder)
        await host.dialled()
        assert await answers(host.host.registry, there) == wanted
    assert there == here == [(1, 2, "asked"), (2, 2, "answered")]


async def test_a_call_that_misses_its_deadline_ends_the_process_one_that_ends_does_not(
    folder: Path,
) -> None:
    async with served(folder) as host:
        await host.start_worker(folder=folder)
        await host.dialled()
        first = host.provider.workers[0]

        async def hang(how: str) -> str:
            context = CallContext(deadline=Deadline.after(asyncio.get_running_loop().time(), 0.3))
            return (await host.host.registry.execute(ToolCall("c", "hang", {"how": how}), context)).status

        assert await hang("wait") == "timeout"
        await until(lambda: first.connection.load == 0)
        assert host.provider.workers == [first]
        assert await hang("block") == "timeout"
        await until(lambda: first not in host.provider.workers, 60)
        await host.dialled()
        assert (await host.call("echo", value=1))["status"] == "success"


async def test_hooks_in_a_worker_see_and_refuse_the_calls_of_the_host(folder: Path) -> None:
    providers = {"made": entry("Around"), "hello": {"enabled": True}}
    async with served(folder, providers=providers) as host:
        await host.start_worker(folder=folder)
        await host.dialled()
        assert (await host.call("hello", name="Bo"))["status"] == "success"
        refused = await host.call("hello", name="forbidden")
        assert (refused["status"], "not for acme" in str(refused["output"])) == ("denied", True)
        seen = str((await host.call("list_seen"))["output"])
        assert "hello success True" in seen
        assert "hello denied True" in seen


async def test_a_granted_check_refuses_the_calls_that_come_before_its_first_worker(folder: Path) -> None:
    run = {"worker": True, "confine": "try", "hooks": ["before_call", "after_call", "change_result"]}
    providers = {"made": {**entry("Around"), "run": run}, "hello": {"enabled": True}}
    async with served(folder, providers=providers) as host:
        assert (await host.call("hello", name="Bo"))["status"] == "denied"
        await host.start_worker(folder=folder)
        await host.dialled()
        assert (await host.call("hello", name="Bo"))["status"] == "success"
