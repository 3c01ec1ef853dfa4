"""The package works from the wheel that is built of it, without its checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.environments import unpack_wheel

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent


@pytest.mark.requirement("I39-adapters-wheels")
def test_the_wheel_holds_the_adapter_and_names_it(tmp_path: Path) -> None:
    wheel = unpack_wheel(tmp_path, PACKAGE)
    assert wheel.providers == {"llm": "toolplug_llm.provider:LlmPlugin"}
    assert wheel.say("toolplug_llm.provider", "*it.LlmPlugin.Config.model_fields") == "plugin arguments"
