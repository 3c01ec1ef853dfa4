"""Schemas and arguments made to hold up the loop, and those of real tools, through the whole pipeline."""

from __future__ import annotations

import gc
import resource
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from time import thread_time

import pytest
from tests.execution.harness import Harness
from tests.hostile_corpus import FAMILIES, Pair, honest_pairs, hostile_pairs

from toolplug import CallContext, ToolCall, ToolStatus
from toolplug.errors import InvalidDefinition
from toolplug.sessions.session_tool import DefinitionCache
from toolplug.signatures.values import encoded

pytestmark = pytest.mark.anyio

HELD_MS = 50
PAIRS = 10_000
SESSIONS = 100
GROWTH = 1.2

TOO_LARGE = "/: too large to validate"


async def answer(call: ToolCall, context: CallContext) -> str:
    return "valid"


class Longest:
    """The longest step so far, and the pair that took it."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.family = ""

    def note(self, began: float, family: str) -> None:
        taken = (thread_time() - began) * 1000
        if taken > self.ms:
            self.ms, self.family = taken, family


async def outcomes(harness: Harness, pairs: Iterable[Pair], longest: Longest) -> Counter[str]:
    """How the calls of tools with these schemas end; a session registers each tool, as text comes over HTTP."""
    ended: Counter[str] = Counter()
    for family, schema, arguments in pairs:
        text = encoded(arguments)
        gc.collect(0)
        began = thread_time()
        try:
            tool = DefinitionCache().tool({"name": "tool", "inputSchema": schema})
        except InvalidDefinition:
            ended["refused when registered"] += 1
            continue
        finally:
            longest.note(began, f"registering {family}")
        began = thread_time()
        result = await harness.call(answer, text, schema=tool.definition.parameters)
        longest.note(began, family)
        ended["too large" if result.output.endswith(TOO_LARGE) else result.status.value] += 1
    return ended


@pytest.mark.requirement("C-3-validation-bounded")
async def test_no_family_of_hostile_pairs_at_the_limits_holds_the_loop(harness: Harness) -> None:
    longest = Longest()
    ended = await outcomes(harness, hostile_pairs(2 * len(FAMILIES)), longest)
    assert longest.ms <= HELD_MS, longest.family
    assert ended.keys() <= {"success", "invalid_arguments", "too large", "refused when registered"}
    assert ended["too large"], "the corpus reaches the budget"


@pytest.mark.judge
@pytest.mark.timeout(600)
async def test_10000_hostile_pairs_never_hold_the_loop(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    longest = Longest()
    ended = await outcomes(harness, hostile_pairs(PAIRS), longest)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with capsys.disabled():
        print(f"\n{PAIRS} pairs: {dict(ended)}")
        print(f"longest loop callback {longest.ms:.1f} ms of CPU ({longest.family}), peak memory {peak_mib} MiB")
    assert longest.ms <= HELD_MS


@pytest.mark.requirement("C-3-validation-bounded")
@pytest.mark.parametrize("pair", tuple(honest_pairs()), ids=lambda pair: pair.family)
async def test_arguments_of_a_mebibyte_that_real_tools_take_are_validated(harness: Harness, pair: Pair) -> None:
    result = await harness.call(answer, encoded(pair.arguments), parameters=pair.schema)
    assert (result.status, result.output) == (ToolStatus.SUCCESS, "valid")


@pytest.mark.judge
@pytest.mark.timeout(600)
async def test_memory_is_back_when_sessions_with_hostile_schemas_have_gone(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    async def session(number: int) -> None:
        """One that comes, has a tool called for each family, and goes."""
        await outcomes(harness, hostile_pairs(len(FAMILIES), seed=number), Longest())

    for number in range(5):
        await session(number)
    gc.collect()
    before = _resident_mib()
    for number in range(5, 5 + SESSIONS):
        await session(number)
    gc.collect()
    after = _resident_mib()
    with capsys.disabled():
        print(f"\nmemory after {SESSIONS} hostile sessions {after:.0f} MiB, before {before:.0f}: {after / before:.2f}")
    assert after <= before * GROWTH


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
