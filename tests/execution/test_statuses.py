"""Every row of the table in CONTRACT.md section 3, with its text."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import pytest
from tests.execution.harness import Harness, at_rest, called, turns

from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.plan import PolicyGate, ScopeGate, TenantsGate
from toolplug.errors import InvalidArguments, ToolError
from toolplug.execution.limiters import ConcurrencyLimit
from toolplug.execution.live import LiveCatalog
from toolplug.execution.run import UnknownCalls, run

pytestmark = pytest.mark.anyio


class Counting:
    """A target that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, call: object, context: object) -> str:
        self.calls += 1
        return "ran"


@pytest.mark.requirement("C-3-success-text")
async def test_text_comes_back_as_it_is(harness: Harness) -> None:
    async def tool(call: object, context: object) -> str:
        return 'as "it" is\n'

    assert await harness.call(tool) == ToolResult("c1", "tool", 'as "it" is\n', ToolStatus.SUCCESS)


@pytest.mark.requirement("C-3-tool-error-raised")
async def test_a_raised_tool_error_is_its_text_with_its_data(harness: Harness) -> None:
    async def tool(call: object, context: object) -> NoReturn:
        raise ToolError("no such file", retry_after_s=2, metadata={"code": "not_found"})

    assert await harness.call(tool) == ToolResult(
        "c1", "tool", "no such file", ToolStatus.TOOL_ERROR, metadata={"code": "not_found"}, retry_after_s=2.0
    )


@pytest.mark.requirement("C-3-tool-error-raised", "H-fact-lone-surrogate")
@pytest.mark.parametrize("pause", [float("nan"), float("inf"), -1.0, None])
async def test_a_tool_error_that_no_json_holds_is_a_readable_one(harness: Harness, pause: float | None) -> None:
    async def tool(call: object, context: object) -> NoReturn:
        raise ToolError("bad \ud800 text", retry_after_s=pause, metadata={"bytes": b"x"})

    assert await harness.call(tool) == ToolResult("c1", "tool", "bad ? text", ToolStatus.TOOL_ERROR)


@pytest.mark.requirement("C-3-panic")
async def test_a_tool_error_that_breaks_when_it_is_read_is_a_panic(harness: Harness) -> None:
    class Broken(ToolError):
        def __str__(self) -> str:
            raise SystemExit("secret")

    async def tool(call: object, context: object) -> NoReturn:
        raise Broken("x")

    assert (await harness.call(tool)).output == 'internal error: builtin tool "tool" panicked'


@pytest.mark.requirement("C-3-panic", "H-provider-raises", "H-trust-no-leak", "FR-018")
async def test_a_panic_says_nothing_of_the_exception_to_the_model_or_to_the_log(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async def tool(call: ToolCall, context: object) -> NoReturn:
        raise ValueError(f"wrong: {call.arguments!r}")

    with caplog.at_level(logging.DEBUG, logger="toolplug"):
        result = await harness.call(tool, {"token": "hunter2"})

    assert result == ToolResult("c1", "tool", 'internal error: builtin tool "tool" panicked', ToolStatus.PANIC)
    assert "hunter2" not in caplog.text
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith("tool 'tool' of provider 'plays' raised ValueError at ")
    assert f"{__file__}:" in line


@pytest.mark.requirement("C-3-invalid-schema", "C-3-invalid-lines")
async def test_invalid_arguments_name_places_and_mask_values(harness: Harness) -> None:
    tool = Counting()
    parameters = {
        "type": "object",
        "properties": {f"p{index:02}": {"type": "integer"} for index in range(30)},
        "additionalProperties": False,
    }
    arguments = {f"p{index:02}": "hunter2" for index in range(30)}

    result = await harness.call(tool, arguments, parameters=parameters)
    first, *lines = result.output.split("\n")

    assert (result.status, tool.calls) == (ToolStatus.INVALID_ARGUMENTS, 0)
    assert first == 'invalid arguments for tool "tool"'
    assert len(lines) == 20
    assert lines[0] == '/p00: must be of type "integer"'
    assert "hunter2" not in result.output


@pytest.mark.requirement("C-3-invalid-lines")
async def test_a_converter_refuses_in_the_same_words(harness: Harness) -> None:
    tool = Counting()

    def convert(arguments: object) -> NoReturn:
        raise InvalidArguments([f"/{index}: no" for index in range(30)])

    result = await harness.call(tool, convert=convert)

    assert result.output.split("\n") == ['invalid arguments for tool "tool"', *(f"/{index}: no" for index in range(20))]
    assert tool.calls == 0


@pytest.mark.requirement("C-3-only-cancellation", "C-3-panic")
@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
async def test_a_converter_that_breaks_is_a_panic(harness: Harness, error: type[BaseException]) -> None:
    tool = Counting()

    def convert(arguments: object) -> NoReturn:
        raise error("secret")

    result = await harness.call(tool, convert=convert)

    assert result.output == 'internal error: builtin tool "tool" panicked'
    assert (tool.calls, harness.counted()) == (0, {"panic": 1})


@pytest.mark.requirement("C-3-only-cancellation")
async def test_a_schema_that_does_not_compile_is_a_panic_of_its_tool(harness: Harness) -> None:
    tool = Counting()

    result = await harness.call(tool, parameters={"properties": {"a": {"type": "nonsense"}}})

    assert (result.status, tool.calls) == (ToolStatus.PANIC, 0)


@pytest.mark.requirement("C-3-unknown")
async def test_an_unlisted_name_is_unknown_whatever_it_looks_like(harness: Harness) -> None:
    live = LiveCatalog(UnknownCalls(harness.counters), harness.catalog(tool=Counting()).prefixed("fs"))
    texts = {
        "other": 'no builtin provider handles tool "other"',
        "fs.other": 'no builtin provider handles tool "fs.other"',
        "fs.a.b": 'no builtin provider handles tool "fs.a.b"',
        ".x": "Toolset not found for .x",
        "fs.": "Toolset not found for fs.",
        "web.x": "Toolset not found for web.x",
        "tool": 'no builtin provider handles tool "tool"',
        "": 'no builtin provider handles tool ""',
        "\ud800": 'no builtin provider handles tool "?"',
    }
    for name, text in texts.items():
        result = await live.execute(ToolCall("c1", name), CallContext())
        assert (result.status, result.output) == (ToolStatus.UNKNOWN_TOOL, text)
    assert harness.counted() == {"unknown_tool": len(texts)}
    assert (await live.execute(ToolCall("c1", "fs.tool"), CallContext())).name == "fs.tool"
    assert (await live.execute(ToolCall("c1", "fs__tool"), CallContext())).output == "ran"


@pytest.mark.requirement("LAW-3", "C-3-unknown-disabled")
async def test_a_tool_of_a_closed_switch_never_runs_even_where_somebody_kept_it(harness: Harness) -> None:
    tool = Counting()
    kept = harness.plan(tool)
    harness.switch.open = False

    result = await run(kept, called(), CallContext())

    assert result == ToolResult("c1", "tool", 'no builtin provider handles tool "tool"', ToolStatus.UNKNOWN_TOOL)
    assert tool.calls == 0


@pytest.mark.requirement("LAW-3")
async def test_a_call_that_waited_in_a_queue_does_not_begin_on_a_switch_closed_meanwhile(harness: Harness) -> None:
    release, tool, permits = asyncio.Event(), Counting(), ConcurrencyLimit(1, 1, "plays")

    async def holds(call: object, context: object) -> str:
        await release.wait()
        return "finished"

    first = asyncio.ensure_future(harness.call(holds, limiters=(permits,)))
    await turns(3)
    second = asyncio.ensure_future(harness.call(tool, limiters=(permits,)))
    await turns(3)
    harness.switch.open = False
    release.set()

    assert (await first).output == "finished"
    assert (await second).status is ToolStatus.UNKNOWN_TOOL
    assert tool.calls == 0
    assert await permits.admit(0.0) is None


@pytest.mark.requirement("C-3-unknown-tenant")
async def test_another_tenants_tool_answers_like_one_that_never_was(harness: Harness) -> None:
    tool = Counting()
    gates = (PolicyGate("line 1"), TenantsGate(frozenset({"t1"}), "line 2"))
    stranger = CallContext(principal=Principal(tenant="t2"))

    result = await harness.call(tool, context=stranger, gates=gates)

    assert result == ToolResult("c1", "tool", 'no builtin provider handles tool "tool"', ToolStatus.UNKNOWN_TOOL)
    assert tool.calls == 0


@pytest.mark.requirement("C-3-denied", "C-3-policy-deny", "C-3-denied-scope", "I2-3-policy-hook")
async def test_a_listed_tool_that_a_gate_refuses_is_denied_with_gate_and_reason(harness: Harness) -> None:
    tool = Counting()
    caller = CallContext(principal=Principal(scopes=frozenset({"tools:call"})))

    by_policy = await harness.call(tool, context=caller, gates=(PolicyGate("line 1"),))
    by_scope = await harness.call(tool, gates=(ScopeGate("tools:call", "line 2"),))
    admitted = await harness.call(tool, context=caller, gates=(ScopeGate("tools:call", "line 2"),))

    assert by_policy == ToolResult(
        "c1", "tool", 'tool "tool" is not allowed: policy: its policy is deny', ToolStatus.DENIED
    )
    assert by_scope.output == "tool \"tool\" is not allowed: scope: the scope 'tools:call' is missing"
    assert (admitted.output, tool.calls) == ("ran", 1)


@pytest.mark.requirement("C-3-timeout", "C-3-timeout-cancels", "H-provider-hangs")
async def test_a_call_past_its_deadline_says_how_long_it_had_and_its_tool_is_cancelled(harness: Harness) -> None:
    ends: list[str] = []

    async def tool(call: object, context: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    result = await harness.call(tool, timeout_s=0.01)
    await at_rest(harness)

    assert result == ToolResult("c1", "tool", 'tool "tool" timed out after 0.01 s', ToolStatus.TIMEOUT)
    assert ends == ["cancelled"]


@pytest.mark.requirement("C-3-timeout")
async def test_a_deadline_that_is_over_at_entry_reaches_no_provider(harness: Harness) -> None:
    tool = Counting()
    over = CallContext(deadline=asyncio.get_running_loop().time() - 1)

    result = await harness.call(tool, context=over)

    assert (result.output, tool.calls) == ('tool "tool" timed out after 0 s', 0)


@pytest.mark.requirement("C-3-timeout")
async def test_the_earlier_of_plan_and_caller_is_the_deadline_and_the_tool_sees_it(harness: Harness) -> None:
    loop = asyncio.get_running_loop()
    seen: list[float] = []

    async def tool(call: object, context: CallContext) -> None:
        assert context.deadline is not None
        seen.append(context.deadline)

    before = loop.time()
    await harness.call(tool, timeout_s=30.0)
    await harness.call(tool, timeout_s=30.0, context=CallContext(deadline=before + 10))
    await harness.call(tool, timeout_s=30.0, context=CallContext(deadline=before + 100))

    assert before + 30 <= seen[0] + 1e-3 < before + 60  # generous: half a minute for the call to begin
    assert seen[1] == pytest.approx(before + 10, abs=1e-3)
    assert seen[2] >= seen[0] - 1e-3


@pytest.mark.requirement(
    "C-3-limited", "C-3-limited-retry-after", "C-3-timeout-abandons", "H-provider-swallows-cancellation"
)
async def test_sixteen_abandoned_calls_open_the_breaker_until_one_of_them_ends(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    release, tool = asyncio.Event(), Counting()

    async def clings(call: object, context: object) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    abandoned = await asyncio.gather(*(harness.call(clings, timeout_s=0.01) for _ in range(16)))
    refused = await harness.call(tool)
    limited = await harness.call(tool, limiters=(ConcurrencyLimit(1, 0, "plays"),))

    assert {result.status for result in abandoned} == {ToolStatus.TIMEOUT}
    assert refused == limited
    assert refused.output == (
        'tool "tool" is limited: its breaker is open: 16 abandoned calls of plays still run, retry in 30 s'
    )
    assert (refused.status, refused.retry_after_s, tool.calls) == (ToolStatus.LIMITED, 30.0, 0)
    assert caplog.messages == ["16 abandoned calls of plays still run; further ones are limited"]
    release.set()
    await at_rest(harness)
    assert (await harness.call(tool)).output == "ran"
