"""The checkout's own providers.yaml, as somebody meets it who has just cloned it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.requirement_table import ROOT

pytestmark = pytest.mark.process

TOOLPLUG = Path(sys.executable).with_name("toolplug")


@pytest.mark.requirement("I2-8-docs-served")
def test_the_projects_own_docs_answer_a_question(tmp_path: Path) -> None:
    shutil.copy(ROOT / "providers.yaml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    command = [TOOLPLUG, "call", "file_search", "query=draining", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["structured"]["results"]
    assert results
    for found in results:
        begin, end = found["characters"]
        assert (tmp_path / found["file"]).read_text("utf-8")[begin:end] == found["passage"]
