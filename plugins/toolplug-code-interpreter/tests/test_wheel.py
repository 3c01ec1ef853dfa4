"""The package works from wheels in an environment of its own, by the command line and over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import httpx2
import pytest
from tests.environments import install_wheels

pytestmark = [pytest.mark.judge, pytest.mark.needs("bwrap")]

PACKAGE = Path(__file__).parent.parent


@pytest.mark.requirement("I3-code-wheel")
def test_the_wheels_install_and_run_code(tmp_path: Path) -> None:
    scripts, _ = install_wheels(tmp_path, "server", "data", PACKAGE)
    (tmp_path / "providers.yaml").write_text("providers: {code_interpreter: {enabled: true}}")

    def run(*words: str) -> str:
        done = subprocess.run(
            [scripts / "toolplug", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("call", "code_interpreter", "code=6 * 7") == "42\n"
    assert "1 provider enabled" in run("check")
    assert "0 errors, " in run("doctor")
    figure = (
        "import pandas, matplotlib.pyplot as plt\n"
        "table = pandas.DataFrame({'x': [1, 2, 3], 'y': [2, 4, 8]})\n"
        "table.plot(x='x', y='y')\nplt.show()\nplt.plot([1, 2])\nplt.show()\ntable.y.sum()"
    )
    command = [str(scripts / "toolplug"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(found[1] for line in process.stderr if (found := re.search(r"listening on (http://\S+)", line)))
            body = {"name": "code_interpreter", "arguments": {"code": figure}}
            answer = httpx2.post(f"{url}/v1/tool-calls", json=body, timeout=90).json()
        finally:
            process.terminate()
            process.stderr.read()
    assert answer["status"] == "success", json.dumps(answer)[:2000]
    assert answer["structured"]["value"] == "np.int64(14)"
    assert [file["name"] for file in answer["structured"]["files"]] == ["figure-1.png", "figure-2.png"]
    assert [part["mimeType"] for part in answer["parts"]] == ["image/png", "image/png"]
