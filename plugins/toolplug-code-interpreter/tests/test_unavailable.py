"""Where containers do not work, the host does, calls are `unavailable`, and `toolplug doctor` says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TOOLPLUG = Path(sys.executable).with_name("toolplug")


@pytest.mark.requirement("I3-code-unavailable")
async def test_without_bubblewrap_calls_are_unavailable_until_it_is_there(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    async with serve() as served:
        result = await served.one.call("1 + 1")
        assert (result.status, result.output) == (
            "unavailable",
            (
                'tool "code_interpreter" is unavailable: bubblewrap is not installed: `apt-get install bubblewrap`, or '
                "the package of your system"
            ),
        )
        answer = await served.one.http.post("/v1/containers", json={"name": "box"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "containers_unavailable")
        assert served.metric("code_interpreter_containers") == 0
        monkeypatch.setenv("PATH", path)
        assert await served.one.run("1 + 1") == "2"


@pytest.mark.requirement("I3-code-unavailable")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo bubblewrap 0.6.1", "is bubblewrap 0.6, and 0.8 is needed"),
        ("exit 3", "cannot be asked for its version"),
        (
            'test "$1" = --version && echo bubblewrap 0.9.0 || { echo "bwrap: No permissions" >&2; exit 1; }',
            "bubblewrap cannot start a container: bwrap: No permissions",
        ),
    ],
)
def test_doctor_says_why_no_code_can_be_run(tmp_path: Path, script: str, why: str) -> None:
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    (tmp_path / "providers.yaml").write_text("providers: {code_interpreter: {enabled: true}}")
    done = subprocess.run(
        [TOOLPLUG, "doctor", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    [warning] = json.loads(done.stdout)["warnings"]
    assert (warning["code"], warning["path"]) == ("provider_warning", "providers.code_interpreter")
    assert why in warning["message"]


@pytest.mark.needs("bwrap")
@pytest.mark.requirement("I3-code-limits")
def test_doctor_says_why_the_kernel_does_not_limit_memory(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text("providers: {code_interpreter: {enabled: true}}")
    without_groups = ("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/sys/fs", "--chdir", str(tmp_path), "--")
    command = [*without_groups, str(TOOLPLUG), "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    [warning] = json.loads(done.stdout)["warnings"]
    assert warning["path"] == "providers.code_interpreter"
    assert "the memory of a container's processes together is measured, not limited by the kernel" in warning["message"]
