"""What a tool does when its caller goes away, and when many call at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolplug.catalog.call import ToolStatus
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import CONCURRENT, Started

_TURNS = (1, 3)
"""Turns of the loop after which the caller goes away."""

_FAIR = frozenset({ToolStatus.SUCCESS, ToolStatus.TOOL_ERROR, ToolStatus.LIMITED})
"""How a repeated example may end: a note that was deleted once cannot be deleted again."""


async def pressure_rules(run: Started) -> list[BrokenRule]:
    """Every example, cancelled in mid call, then many at a time."""
    broken: list[BrokenRule] = []
    for name, arguments in run.examples():
        broken += await _cancelled(run, name, arguments) or await _at_once(run, name, arguments)
    return broken


async def _cancelled(run: Started, name: str, arguments: Mapping[str, object]) -> list[BrokenRule]:
    for turns in _TURNS:
        task = asyncio.create_task(run.call(name, arguments))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not await run.quiet():
            what = f"still runs {run.subject.within_s:g} s after its caller was cancelled"
            fix = "let CancelledError through; a synchronous tool must end on its own"
            return [BrokenRule("cancellation", f"tool {name!r}", what, fix)]
    return []


async def _at_once(run: Started, name: str, arguments: Mapping[str, object]) -> list[BrokenRule]:
    ids = [f"call-{number}" for number in range(CONCURRENT)]
    results = await asyncio.gather(*(run.call(name, arguments, call_id=call_id) for call_id in ids))
    failed = [result for result in results if result.status not in _FAIR]
    if not failed:
        return []
    what = f"of {CONCURRENT} calls at once {len(failed)} failed, the first with {failed[0].status}: {failed[0].output}"
    fix = "keep nothing of one call on the instance where another call finds it"
    return [BrokenRule("concurrency", f"tool {name!r}", what, fix)]
