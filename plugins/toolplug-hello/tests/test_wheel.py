"""The package works from the wheel that is built of it, without its checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.environments import unpack_wheel

pytestmark = pytest.mark.process

PACKAGE = Path(__file__).parent.parent


@pytest.mark.requirement("I2-8-hello")
def test_the_wheel_holds_the_provider_and_names_it(tmp_path: Path) -> None:
    wheel = unpack_wheel(tmp_path, PACKAGE)
    assert wheel.providers == {"hello": "toolplug_hello.provider:Hello"}
    assert wheel.say("toolplug_hello.provider", "it.Hello().tools()[0].name") == "hello"
