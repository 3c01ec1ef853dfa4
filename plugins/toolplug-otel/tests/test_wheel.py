"""The package works from wheels in an environment of its own, by the command line and over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.environments import install_wheels

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
TO_TERMINAL = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}


def test_the_wheels_install_and_trace_calls(tmp_path: Path, commands: Any) -> None:
    scripts, _ = install_wheels(tmp_path, "server", "", PACKAGE)
    installed = replace(commands, python=scripts / "python")

    called = installed.toolplug("call", "traced", **TO_TERMINAL)
    assert called.returncode == 0, called.stderr
    assert [span["name"] for span in commands.exported(called.stderr)] == ["work", "execute_tool traced"]

    with installed.serving(**TO_TERMINAL) as (url, printed):
        headers = {"traceparent": PARENT}
        answer = httpx2.post(f"{url}/v1/tool-calls", json={"name": "traced"}, headers=headers, timeout=30).json()
    work, span = commands.exported(printed.read_text())
    assert (span["context"]["trace_id"], work["context"]["trace_id"]) == (f"0x{TRACE}", f"0x{TRACE}")
    assert answer["output"] == f"00-{TRACE}-{span['context']['span_id'][2:]}-01"
