"""What the README shows runs as it stands."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from toolplug_file_search.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
TOOLPLUG = Path(sys.executable).with_name("toolplug")

Start = Callable[[], AbstractContextManager[tuple[str, subprocess.Popen[str]]]]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.requirement("I2-10-examples-run")
def test_the_call_over_a_folder_answers(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "draining.md").write_text("# Draining\n\nRunning calls finish first.\n")
    (tmp_path / "providers.yaml").write_text(block("yaml"))
    command = [TOOLPLUG, "call", "file_search", "query=what happens to running calls", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)["structured"]["results"]
    assert found["cite"] == "docs/draining.md:1-3"
    shown = re.search(r'\{"results": \[\{(.*?), …\}\]\}', README)
    assert shown is not None
    assert set(json.loads(f"{{{shown[1]}}}")) < set(found)


@pytest.mark.requirement("I2-10-examples-run")
def test_the_upload_fills_the_index(start: Start) -> None:
    with start() as (url, _):
        code = block("python").replace("http://127.0.0.1:8080", url).replace('api_key="none"', 'api_key="key-one"')
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            names: dict[str, object] = {}
            exec(compile(code, "README.md", "exec"), names)
        names["ai"].close()
    assert printed.getvalue() == "1\n"


def test_every_setting_stands_in_its_table_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        row = next(line for line in README.splitlines() if line.startswith("| `") and f"`{name}`" in line)
        assert field.default == () or str(int(field.default)) in row
