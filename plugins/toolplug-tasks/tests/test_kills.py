"""Two processes of one store: either answers for the tasks of the other, also once that is dead."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import httpx2
import pytest
from tests.kept_port import kept_port
from tests.mcp.task_client import FORMS, with_tasks
from tests.nemeses.fleet import Host
from tests.wire.deployments import SHARED

pytestmark = [pytest.mark.judge, pytest.mark.anyio, pytest.mark.requirement("I39-tasks-killed")]

HOLD_S = 10.0
"""From the death of a process until its task has failed."""
SLOW_MACHINE = 3
TOOLS = """
    import asyncio
    from toolplug import CallContext, tool

    @tool
    async def last() -> str:
        "Go on for an hour."
        await asyncio.sleep(3600)
        return "an hour"

    @tool
    async def book(context: CallContext) -> str:
        "Ask for a number of seats, and book them."
        schema = {"type": "object", "properties": {"seats": {"type": "integer"}}}
        answer = await context.ask("How many seats?", schema)
        return f"{answer.action}: {answer.content.get('seats')}"
"""


async def test_a_task_is_answered_cancelled_and_found_lost_by_another_process(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS), "utf-8")
    (tmp_path / "providers.yaml").write_text(
        f"store: {SHARED}\ntasks: {{tasks_after: 50ms}}\nproviders: {{own: {{type: ./tools.py, enabled: true}}}}\n",
        "utf-8",
    )
    with kept_port() as one, kept_port() as two:
        here, there = Host(tmp_path, one), Host(tmp_path, two)
        try:
            await here.start()
            await there.start()
            async with (
                httpx2.AsyncClient(base_url=here.url, timeout=60) as first,
                httpx2.AsyncClient(base_url=there.url, timeout=60) as second,
            ):
                ann, elsewhere = with_tasks(first, **FORMS), with_tasks(second, **FORMS)
                task_id = (await ann.call("book"))["taskId"]
                asks = await elsewhere.ended(task_id, until=lambda each: each["status"] == "input_required")
                answer = {name: {"action": "accept", "content": {"seats": 3}} for name in asks["inputRequests"]}
                await elsewhere.send("tasks/update", taskId=task_id, inputResponses=answer)
                assert (await elsewhere.ended(task_id))["result"]["content"][0]["text"] == "accept: 3"
                stopped = (await ann.call("last"))["taskId"]
                await elsewhere.send("tasks/cancel", taskId=stopped)
                async with asyncio.timeout(60):
                    while "antwort_tasks_running 0.0" not in (await first.get("/metrics")).text:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                lost = (await ann.call("last"))["taskId"]
                assert (await elsewhere.task(lost))["status"] == "working"
                here.kill()
                killed_at = monotonic()
                failed = await elsewhere.ended(lost)
                took_s = monotonic() - killed_at
            assert (failed["status"], failed["error"]["data"]) == ("failed", {"code": "outcome_unknown"})
            record_property("figure", f"the task of a killed process: failed after {took_s:.1f} s, hold {HOLD_S:g} s")
            assert took_s < SLOW_MACHINE * HOLD_S  # generous: three times the figure
        finally:
            here.kill()
            there.kill()
