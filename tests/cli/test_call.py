"""`toolplug call`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from tests.cli.conftest import Run
from tests.cli.process import toolplug
from tests.providers.fake_distribution import install, provides

HELLO = "providers: {hello: {enabled: true}}"

SHOW = """
    from toolplug import CallContext, FunctionProvider, ToolError, tool

    class Show(FunctionProvider):
        @tool
        async def caller(self, context: CallContext) -> dict[str, object]:
            principal = context.principal
            context.report(1, 2, "half")
            return {"tenant": principal.tenant, "admin": principal.has_scope("anything")}

        @tool
        async def fails(self) -> str:
            raise ToolError("no luck")

        @tool(timeout="50ms")
        async def clings(self) -> str:
            import asyncio
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass
"""


@pytest.mark.requirement("C-10-call", "C-10-stderr")
def test_a_tool_answers_on_stdout_without_server(run: Run, write: Callable[..., Path]) -> None:
    write(HELLO)
    assert run("call", "hello", "name=Ada") == (0, "Hello, Ada!\n", "")


@pytest.mark.requirement("C-10-call-json", "C-10-json")
def test_json_answers_like_http(run: Run, write: Callable[..., Path]) -> None:
    write(HELLO)
    done = run("call", "hello", '{"name": "Ada"}', "--json")
    assert done.code == 0
    assert done.json == {
        "call_id": "cli",
        "output": "Hello, Ada!",
        "is_error": False,
        "status": "success",
        "metadata": {},
    }


@pytest.mark.requirement("C-10-exit-codes", "C-10-stderr")
def test_a_result_that_is_an_error_exits_1_with_its_status_on_stderr(
    run: Run, write: Callable[..., Path], package: Callable[..., None]
) -> None:
    package("toolplug-show", {"show": "show_mod:Show"}, show_mod=SHOW)
    write("providers: {show: {enabled: true}}")
    assert run("call", "fails") == (1, "no luck\n", "tool_error\n")
    assert run("call", "fail") == (1, 'no builtin provider handles tool "fail"\n', "unknown_tool (nearest: 'fails')\n")
    wrong = run("call", "caller", "extra=1")
    assert (wrong.code, wrong.err) == (1, "invalid_arguments\n")
    assert run("call", "fails", "--json").json["status"] == "tool_error"


@pytest.mark.requirement("C-10-operator")
def test_the_caller_is_the_operator_with_all_scopes_in_the_tenant_of_choice(
    run: Run, write: Callable[..., Path], package: Callable[..., None]
) -> None:
    package("toolplug-show", {"show": "show_mod:Show"}, show_mod=SHOW)
    write("providers: {show: {enabled: true}}")
    done = run("call", "caller", "--json")
    assert done.json["structured"] == {"tenant": "default", "admin": True}
    assert done.err == "1 of 2 half\n"
    assert run("call", "caller", "--tenant", "t7", "--json").json["structured"]["tenant"] == "t7"


@pytest.mark.process
@pytest.mark.requirement("H-fact-serve-shutdown")
def test_a_tool_that_will_not_go_does_not_keep_the_command(tmp_path: Path, write: Callable[..., Path]) -> None:
    site = tmp_path / "site"
    install(site, "toolplug-show", provides(show="show_mod:Show"), modules={"show_mod": dedent(SHOW)})
    write("providers: {show: {enabled: true, limits: {drain: 0}}}")
    done = toolplug("call", "clings", folder=tmp_path, site=site)
    assert (done.code, done.out) == (1, 'tool "clings" timed out after 0.05 s\n')
    assert "Traceback" not in done.err
