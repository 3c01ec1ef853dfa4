"""Each adapter's page in the environment of its framework, against the scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.environments import FRAMEWORKS, environment
from tests.docs.model import model
from tests.docs.reader import Reader
from tests.requirement_table import ROOT

pytestmark = pytest.mark.judge


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_of_the_framework_calls_a_tool(framework: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / f"use-with-{framework.replace('_', '-')}.md"
    packages = [str(path) for path in environment(framework).glob("lib/*/site-packages")]
    with model() as environ, Reader(tmp_path, {**environ, "PYTHONPATH": str(ROOT / "src")}, packages) as reader:
        reader.read(page.read_text("utf-8"))
