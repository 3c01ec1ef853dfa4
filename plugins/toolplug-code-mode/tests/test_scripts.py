"""Scripts over tools: what they may call, how calls of them are made, and what ends them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient

from toolplug import CallContext, ToolCall, ToolResult, ToolStatus, tool
from toolplug.http import create_app

from .conftest import ADA, Price, Serve, Shop, interpreters

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I37-scripts")]

MADE = {"callers": "all"}


async def test_the_last_value_is_the_result_and_what_is_printed_is_kept(serve: Serve) -> None:
    async with serve() as opened:
        result = await opened.run('print("three")\nsum([(await price(item="a", count=n))["cents"] for n in range(3)])')
        assert result.structured == {"result": 1050, "printed": "three\n"}
        assert json.loads(result.output) == result.structured
        assert await opened.value("x = 1") is None
        assert await opened.value("{2}, b'ab', 1.5, {'a': None}") == [[2], "YWI=", 1.5, {"a": None}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("[float('nan'), {'a': float('-inf')}]", ["NaN", {"a": "-Infinity"}]),
        ("10**5000 == 10**5000, 10**5000", [True, f"1{'0' * 5000}"]),
        ("2**100_000", "an integer of 100,001 bits"),
        ("deep(300)", f"{'[' * 300}1{']' * 300}"),
        ("deep(20_000)", "a list that is nested too deeply to be shown"),
    ],
)
async def test_a_value_that_is_no_json_is_shown_as_text(serve: Serve, value: str, shown: object) -> None:
    deep = "def deep(levels):\n    value = 1\n    for _ in range(levels):\n        value = [value]\n    return value\n"
    async with serve() as opened:
        assert await opened.value(f"{deep}{value}") == shown


async def test_a_script_is_checked_before_anything_runs(serve: Serve) -> None:
    async with serve(MADE) as opened:
        for line, words in {
            'await prise(item="tea")': "Name `prise` used when not defined",
            "await price()": "No argument provided for required parameter `item`",
            'await price(item="tea", colour=1)': "Argument `colour` does not match any known parameter",
            "await price(item=7)": "Expected `str`",
            '(await price(item="tea"))["euros"]': "euros",
            'price(item="tea")': "is not awaited",
            "1 +": "Expected an expression",
        }.items():
            result = await opened.run(f'await order(item="milk")\n{line}')
            assert result.status is ToolStatus.INVALID_ARGUMENTS, line
            assert "/code: line 2: " in result.output, line
            assert words in result.output, line
        assert opened.shop.orders == []


async def test_a_function_whose_name_begins_with_an_underscore_is_called(serve: Serve) -> None:
    class Odd(Shop):
        @tool(name="1st", read_only=True)
        async def first(self, n: int) -> Price:
            """Say the first price."""
            return Price(item="tea", cents=n)

    async with serve(shop=Odd()) as opened:
        assert await opened.value('first: Any = await _1st(n=3)\nfirst["cents"]') == 3
        assert "Expected `int`" in (await opened.run('await _1st(n="3")')).output


async def test_a_failed_call_is_an_exception_with_its_text_or_its_status(serve: Serve) -> None:
    async with serve(tools={"who": "deny"}) as opened:
        caught = "try:\n    await {}\nexcept RuntimeError as error:\n    said = str(error)\nsaid"
        assert await opened.value(caught.format('price(item="gold")')) == "gold is sold out"
        assert (await opened.value(caught.format("who()"))).startswith("denied: ")
        assert "result of text has 2000000 bytes" in await opened.value(caught.format("text(length=2_000_000)"))
        result = await opened.run('print("so far")\nawait price(item="gold")')
        assert result.status is ToolStatus.TOOL_ERROR
        assert 'File "script", line 2' in result.output
        assert result.output.endswith("RuntimeError: gold is sold out\n[printed: so far\n]")


async def test_calls_are_those_of_the_caller_and_run_side_by_side(serve: Serve) -> None:
    async with serve() as opened:
        assert (await opened.value("await who()"))[0] == "ada"
        code = "import asyncio\nlen(await asyncio.gather(*[wait(s=0.1) for _ in range(9)]))"
        assert await opened.value(code) == 9
        assert opened.shop.most == 9


async def test_a_call_of_a_script_is_a_call_as_any_other(serve: Serve) -> None:
    class Watched(Shop):
        """Sees each call, and refuses one."""

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, str | None, str | None]] = []

        def before_call(self, call: ToolCall, context: CallContext) -> str | None:
            return "not for sale" if call.arguments.get("item") == "gold" else None

        def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
            self.seen.append((call.name, result.status.value, context.agent))

        @tool(read_only=True)
        async def hurried(self, context: CallContext) -> bool:
            """Say whether the caller waits for a time only."""
            return context.deadline is not None

    shop = Watched()
    toolsets = {key: {"from": f"provider:{key}", "prefix": key} for key in ("shop", "code")}
    agents = {"clerk": {"toolsets": [*toolsets]}}
    rules = {"who": {"limits": {"rate": "2/hour"}}}
    async with serve(tools=rules, shop=shop, toolsets=toolsets, agents=agents) as opened:
        code = """
async def attempt(call):
    try:
        return await call
    except RuntimeError as error:
        return str(error)
refused = await attempt(shop__price(item="gold"))
[refused, await shop__hurried(), [await attempt(shop__who()) for _ in range(3)]]
"""
        deadline = asyncio.get_running_loop().time() + 60.0
        context = CallContext(ADA, agent="clerk", deadline=deadline)
        result: Any = await opened.host.executor_for(ADA, agent="clerk").call("code.run_code", {"code": code}, context)
        assert not result.is_error, result.output
        vetoed, hurried, who = result.structured["result"]
        assert "not for sale" in vetoed
        assert hurried
        assert who[:2] == [["ada", "clerk", None]] * 2
        assert who[2].startswith("limited: ")
        called = ["price", "hurried", "who", "who", "who", "run_code"]
        statuses = ["denied", "success", "success", "success", "limited", "success"]
        assert shop.seen == [(name, status, "clerk") for name, status in zip(called, statuses, strict=True)]
        app = ASGITransport(app=create_app(opened.host))
        async with AsyncClient(transport=app, base_url="http://127.0.0.1") as client:
            text = (await client.get("/metrics")).text
        counts = [line for line in text.splitlines() if "builtin_tool_executions_total{" in line and '"who"' in line]
        assert sorted(line.partition("status=")[2].partition(",")[0] + line[-4:] for line in counts) == [
            '"limited" 1.0',
            '"success" 2.0',
        ]


@pytest.mark.parametrize(
    ("callers", "policies", "callable_"),
    [
        ("guarded", {}, {"price": True, "order": False}),
        ("guarded", {"order": "ask"}, {"price": True, "order": True}),
        ("guarded", {"order": {"policy": "ask", "watch": True}}, {"price": True, "order": False}),
        ("read_only", {"order": "ask"}, {"price": True, "order": False}),
        ("all", {}, {"price": True, "order": True}),
        (["shop.o*"], {}, {"price": False, "order": True}),
        (["price"], {}, {"price": True, "order": False}),
    ],
)
async def test_the_file_says_which_tools_scripts_may_call(
    serve: Serve, callers: object, policies: Mapping[str, object], callable_: Mapping[str, bool]
) -> None:
    async with serve({"callers": callers}, policies) as opened:
        for name, may in callable_.items():
            result = await opened.run(f"if len(str(1)) > 1:\n    await {name}(item='tea')")
            assert (result.status is ToolStatus.SUCCESS) is may, (name, result.output)
            if not may:
                assert "scripts may not call this tool (the setting `callers`)" in result.output
                # Not by a name either that the checker does not see.
                hidden = await opened.run(f"await eval(\"{name}(item='tea')\")")
                assert "NameError" in hidden.output
        assert opened.shop.orders == []


async def test_a_script_runs_no_other_script(serve: Serve) -> None:
    async with serve({"callers": "all"}) as opened:
        assert "scripts may not call this tool" in (await opened.run('await run_code(code="1")')).output
        answer = await opened.value("await again(code='1')")
        assert answer == "denied: a script cannot run another script: call its functions"
        assert (await opened.run("1")).status is ToolStatus.SUCCESS


async def test_the_limits_of_a_script(serve: Serve) -> None:
    async with serve({"max_calls": 3, "max_s": 0.5, "memory": "8MiB"}) as opened:
        code = "import asyncio\nfor n in range(4):\n    await who()"
        assert "a script may make 3 calls of tools, and this is one more" in (await opened.run(code)).output
        for code, words in {
            "while True:\n    pass": "TimeoutError",
            "x = 'x' * 10**8": "MemoryError",
            "x = [0]\nwhile True:\n    x += x": "MemoryError",
            "def f():\n    f()\nf()": "RecursionError",
            "2 ** (10 ** 9)": "MemoryError",
        }.items():
            result = await opened.run(code)
            assert (result.status, words in result.output) == (ToolStatus.TOOL_ERROR, True), result.output
        # Time that tools take is not the script's, and what is printed is bounded.
        assert await opened.value("await wait(s=0.8)") == "waited"
        printed = (await opened.run("for _ in range(700):\n    print('x' * 99)")).structured
        assert len(printed["printed"]) < 66_000  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]
        assert "characters more]" in str(printed)


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.environ['HOME']",
        "import os\nos.listdir('/')",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        "import socket",
        "import subprocess",
        "import ctypes",
        "__import__('socket')",
        "eval(\"open('/etc/passwd')\")",
        "().__class__.__base__.__subclasses__()",
        "getattr(price, '__globals__')",
        "f'{price.__globals__}'",
    ],
)
async def test_a_script_reaches_nothing_of_the_machine(serve: Serve, code: str) -> None:
    async with serve() as opened:
        result = await opened.run(code)
        assert result.status in (ToolStatus.INVALID_ARGUMENTS, ToolStatus.TOOL_ERROR), result.output
        assert "root:" not in result.output


async def test_an_interpreter_that_dies_is_an_error_of_the_tool(serve: Serve) -> None:
    async with serve({"callers": "all"}) as opened:
        result = await opened.run('await order(item="tea")\nawait kill_interpreters()\nawait order(item="milk")')
        assert result.status is ToolStatus.TOOL_ERROR
        assert "the interpreter has ended" in result.output
        assert 'order(item="tea"): success' in result.output
        assert (await opened.value("1 + 1"), opened.shop.orders) == (2, ["tea"])
    assert interpreters() == []


async def test_scripts_wait_for_a_process_of_the_pool(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve({"processes": 1}) as opened:
        assert await asyncio.gather(*(opened.value("await wait(s=0.1)") for _ in range(3))) == ["waited"] * 3
        assert len(interpreters()) == 1
    monkeypatch.setattr("toolplug_code_mode.interpreter.CHECKOUT_S", 0.05)
    async with serve({"processes": 1}) as opened:
        slow = asyncio.create_task(opened.run("await wait(s=30)"))
        await opened.begun()
        result = await opened.run("1")
        assert (result.status, result.output) == (ToolStatus.LIMITED, "all 1 processes for scripts are taken")
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


async def test_the_audit_log_says_which_calls_a_script_has_made(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolplug.audit")
    async with serve(tools={"who": "deny"}) as opened:
        await opened.run("await who()", CallContext(ADA, request_id="r1"))
    lines: list[dict[str, Any]] = [json.loads(each.message) for each in caplog.records if "who" in each.message]
    assert [(line["event"], line["outcome"], line["target"], line["via"]) for line in lines] == [
        ("tool.call", "denied", "who", "code")
    ]


async def test_a_large_result_is_an_artifact(serve: Serve) -> None:
    async with serve({"limits": {"artifacts": True}}) as opened:
        result = await opened.run("'x' * 2_000_000")
        handle = result.metadata["truncated"]["handle"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
        assert str(handle) in result.output


async def test_a_caller_that_goes_away_ends_its_script(serve: Serve) -> None:
    async with serve() as opened:
        running = asyncio.create_task(opened.run("await wait(s=30)"))
        await opened.begun()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(5):
            while opened.shop.running:  # noqa: ASYNC110  the tool ends in a task of its own
                await asyncio.sleep(0.01)
