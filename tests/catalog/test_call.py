"""The three values made on every call, and who makes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolplug.catalog.call import (
    ANONYMOUS,
    CallContext,
    Credentials,
    Principal,
    ToolCall,
    ToolResult,
    ToolStatus,
    current_tenant,
    enter_frame,
    quick_call,
    quick_result,
)


@pytest.mark.requirement("C-12-principal-default", "C-12-context-default")
def test_who_says_nothing_of_the_caller_gets_an_anonymous_one_without_scopes() -> None:
    nobody = Principal(subject="anonymous", tenant="default", scopes=frozenset(), agents=None)
    assert Principal() == nobody
    assert CallContext() == CallContext(principal=nobody)
    assert not nobody.has_scope("tools:call")


def test_scopes_and_agents_may_be_any_collection_of_names_but_not_one_text() -> None:
    scopes: Any = {"tools:call"}
    agents: Any = ["clerk"]
    text: Any = "tools:call"
    loose = Principal(scopes=scopes, agents=agents)
    assert loose == Principal(scopes=frozenset({"tools:call"}), agents=frozenset({"clerk"}))
    assert hash(loose)
    with pytest.raises(TypeError, match=r"scopes is a set of names, not one text: frozenset\(\{'tools:call'\}\)"):
        Principal(scopes=text)


def test_the_credentials_of_a_caller_are_not_in_the_text_of_its_context() -> None:
    context = CallContext(credentials=Credentials(pets="s3cret"))
    assert context.credentials["pets"] == "s3cret"
    assert ("Credentials(pets)" in repr(context), "s3cret" in repr(context)) == (True, False)


@pytest.mark.parametrize("status", ToolStatus)
def test_every_status_but_success_is_an_error(status: ToolStatus) -> None:
    assert ToolResult(status=status).is_error is (status != "success")


def test_the_statuses_are_those_of_the_contract_and_the_one_that_is_only_counted() -> None:
    assert [str(status) for status in ToolStatus] == [
        "success",
        "tool_error",
        "panic",
        "invalid_arguments",
        "unknown_tool",
        "timeout",
        "denied",
        "unavailable",
        "limited",
        "cancelled",
    ]


def test_a_call_without_arguments_has_an_empty_object_that_nobody_can_fill() -> None:
    call = ToolCall("c1", "read")
    assert call == ("c1", "read", {})
    with pytest.raises(TypeError):
        call.arguments["a"] = 1


def test_the_quick_ways_make_the_same_values() -> None:
    assert quick_call(ToolCall, ("c1", "read", {"a": 1})) == ToolCall("c1", "read", {"a": 1})
    given = ToolResult("c1", "read", "text", ToolStatus.PANIC, {"a": 1}, (), {"b": 2}, 3.0)
    made = quick_result(ToolResult, tuple(given))
    assert (made, type(made), made.is_error) == (given, ToolResult, True)


def test_a_context_is_anonymous_and_reports_to_nobody_unless_told() -> None:
    context = CallContext()
    assert context.principal is ANONYMOUS
    assert context.principal == Principal(subject="anonymous", tenant="default", scopes=frozenset(), agents=None)
    context.report(0.5)
    context.report(1, total=2, message="half")
    assert (context.deadline, context.session, context.agent, dict(context.options)) == (None, None, None, {})


def test_admin_implies_every_scope_and_nothing_implies_admin() -> None:
    reader, admin = Principal(scopes=frozenset({"tools:read"})), Principal(scopes=frozenset({"admin"}))
    assert (reader.has_scope("tools:read"), reader.has_scope("tools:call"), reader.has_scope("admin")) == (
        True,
        False,
        False,
    )
    assert all(admin.has_scope(scope) for scope in ("admin", "tools:read", "notes:read"))


@pytest.mark.anyio
@pytest.mark.requirement("REG-tenant-delivered")
async def test_the_tenant_is_the_one_of_the_code_that_asks_and_default_outside() -> None:
    async def inside(tenant: str) -> str:
        enter_frame(tenant)
        await asyncio.sleep(0)
        return current_tenant()

    assert await asyncio.gather(*(asyncio.create_task(inside(tenant)) for tenant in ("t1", "t2"))) == ["t1", "t2"]
    assert current_tenant() == "default"
