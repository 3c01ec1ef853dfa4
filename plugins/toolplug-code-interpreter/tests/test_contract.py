"""The provider keeps the contract between providers and hosts."""

from __future__ import annotations

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_code_interpreter.provider import CodeInterpreter

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.needs("bwrap")]


@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_provider_keeps_the_contract() -> None:
    await check_provider(CodeInterpreter, calls={"code_interpreter": {"code": "1 + 1"}})
