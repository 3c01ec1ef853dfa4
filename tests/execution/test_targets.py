"""Targets that are not what they should be."""

from __future__ import annotations

import pytest
from tests.execution.harness import Harness, called

from toolplug.catalog.call import CallContext, ToolStatus
from toolplug.execution.run import run

pytestmark = pytest.mark.anyio


class Later:
    """Awaitable, and no coroutine."""

    def __await__(self):
        yield
        return "later"


@pytest.mark.requirement("C-3-panic")
@pytest.mark.parametrize("value", ["", [], None, 5, {}])
async def test_a_target_that_gives_no_awaitable_is_a_panic(harness: Harness, value: object) -> None:
    result = await run(harness.plan(lambda call, context: value), called(), CallContext())
    assert result.status is ToolStatus.PANIC


@pytest.mark.requirement("C-3-success-text")
async def test_a_target_may_give_any_awaitable(harness: Harness) -> None:
    result = await run(harness.plan(lambda call, context: Later()), called(), CallContext())
    assert result.output == "later"
