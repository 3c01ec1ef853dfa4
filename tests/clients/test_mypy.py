"""Loops with the SDKs of OpenAI, Anthropic and Google type-check under mypy, as under pyright in `make test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients.environments import environment
from tests.docs.fences import fences
from tests.docs.typed_blocks import LOOPS
from tests.requirement_table import ROOT

PAGE = ROOT / "docs" / "how-to" / "run-a-loop-of-your-own.md"


@pytest.mark.long(40)
@pytest.mark.judge
@pytest.mark.timeout(300)
@pytest.mark.requirement("I33-7-mypy")
def test_listings_and_loops_type_check_under_mypy(tmp_path: Path) -> None:
    pages = [block for block in fences(PAGE.read_text("utf-8")) if block.language == "python"]
    files = [LOOPS, *(tmp_path / f"block_{block.line}.py" for block in pages)]
    for file, block in zip(files[1:], pages, strict=True):
        file.write_text(block.text, "utf-8")
    command: list[str | Path] = [environment("mypy") / "bin" / "python", "-m", "mypy"]
    # The packages themselves are not what is checked: their errors under mypy are no errors of a user.
    command += [
        "--python-executable",
        sys.executable,
        "--strict",
        "--no-error-summary",
        "--no-incremental",
        "--follow-imports",
        "silent",
        *files,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
