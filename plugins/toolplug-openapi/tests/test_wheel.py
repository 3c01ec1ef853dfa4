"""The package works from wheels in an environment of its own, by the command line and over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.environments import install_wheels

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent


def test_the_wheels_install_and_serve_an_api(api: Any, tmp_path: Path) -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    api.operations({"/pets/{id}": {"get": {"operationId": "pet", "summary": "One pet.", "parameters": [parameter]}}})
    scripts, _ = install_wheels(tmp_path, "server", "", PACKAGE)
    entry = {"type": "openapi", "enabled": True, "document": f"{api.url}/openapi.json"}
    (tmp_path / "providers.yaml").write_text(json.dumps({"providers": {"pets": entry}, "store": "memory://"}))

    def run(*words: str) -> str:
        done = subprocess.run(
            [scripts / "toolplug", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "pet" in run("tools")
    assert json.loads(run("call", "pet", "id=7"))["path"] == "/pets/7"
    assert "1 provider enabled" in run("check")
    command = [str(scripts / "toolplug"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(found[1] for line in process.stderr if (found := re.search(r"listening on (http://\S+)", line)))
            body = {"name": "pet", "arguments": {"id": 8}}
            answer = httpx2.post(f"{url}/v1/tool-calls", json=body, timeout=30).json()
        finally:
            process.terminate()
            process.stderr.read()
    assert (answer["status"], answer["structured"]["path"]) == ("success", "/pets/8")
