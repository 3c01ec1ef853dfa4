"""The tutorial's provider: what it greets, over both ways in, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug import CallContext, Principal, ToolCall
from toolplug.errors import ConfigError
from toolplug.testing.provider_check import check_provider, running
from toolplug_hello.provider import Hello

README = Path(__file__).parents[1] / "README.md"

pytestmark = pytest.mark.anyio

InProcess = Callable[..., AbstractAsyncContextManager[Any]]
CALL = frozenset({"tools:call"})


@pytest.mark.requirement("I2-9-all-use-it", "I2-8-hello")
@pytest.mark.parametrize("settings", [{}, {"greeting": "Moin"}])
async def test_hello_keeps_every_rule_of_a_provider(settings: Mapping[str, object]) -> None:
    await check_provider(Hello, settings=settings, calls={"hello": {"name": "Ada"}}, readme=README)


@pytest.mark.requirement("I2-8-hello")
async def test_it_greets_the_world_or_whom_it_is_told_in_the_operators_words() -> None:
    async with running(Hello, {"greeting": "Moin"}) as registry:
        calls = [ToolCall("1", "hello"), ToolCall("2", "hello", '{"name": "Ada"}')]
        said = [(await registry.execute(call, CallContext())).output for call in calls]
        assert said == ["Moin, world!", "Moin, Ada!"]


@pytest.mark.requirement("I2-8-hello")
async def test_over_http_it_greets_the_tenant_and_counts_people_not_requests(in_process_host: InProcess) -> None:
    people = [Principal(subject=name, tenant=f"{name}s", scopes=CALL) for name in ("ada", "bob")]
    async with in_process_host({"providers": {"hello": {"enabled": True}}}, principals=people) as served:
        for caller in served.callers.values():
            greeting = {"greeting": f"Hello, {caller.principal.tenant}!"}
            assert (await caller.client.get("/v1/hello")).json() == greeting
            await caller.call("hello")
        assert (await served.nobody.get("/v1/hello")).status_code == 401
        assert "hello_greetings_total 2.0" in (await served.nobody.get("/metrics")).text


@pytest.mark.parametrize("arguments", [{"name": "x" * 201}, {"name": 5}, {"whom": "Ada"}])
async def test_what_it_cannot_greet_never_reaches_it(arguments: Mapping[str, object]) -> None:
    async with running(Hello) as registry:
        result = await registry.execute(ToolCall("1", "hello", arguments), CallContext())
        assert result.status == "invalid_arguments"


@pytest.mark.parametrize("greeting", ["", "x" * 101, 5])
async def test_a_greeting_that_is_none_stops_the_start_and_says_where(
    in_process_host: InProcess, greeting: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with in_process_host({"providers": {"hello": {"enabled": True, "greeting": greeting}}}):
            raise AssertionError("it must not start")
    assert [problem.path for problem in caught.value.problems] == ["providers.hello.greeting"]
