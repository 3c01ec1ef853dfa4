"""The plugin at `toolplug serve`, with an application that lends a tool, and after a reload."""

from __future__ import annotations

import re
from typing import Any

import pytest
from httpx2 import AsyncClient

from toolplug import CallContext
from toolplug.client import Application

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
TO_TERMINAL = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
WAIT_S = 60


async def test_an_application_gets_the_span_of_the_call_and_the_span_is_a_child_of_the_request(commands: Any) -> None:
    with commands.serving(**TO_TERMINAL) as (url, printed):
        answer = await called_at_application(url)
    (span,) = commands.exported(printed.read_text())
    named = f"00-{span['context']['trace_id'][2:]}-{span['context']['span_id'][2:]}-01"
    assert answer["structured"] == {"traceparent": named}
    assert (span["name"], span["parent_id"]) == ("execute_tool lent", f"0x{SPAN}")
    assert span["context"]["trace_id"] == f"0x{TRACE}"


async def called_at_application(url: str) -> dict[str, object]:
    """Lend a tool that returns the trace context that it gets, and return the answer to a call of it."""
    app = Application(url, plugin_type="table")

    @app.tool
    async def lent(context: CallContext) -> dict[str, str]:
        return dict(context.trace_context)

    async with app, AsyncClient(base_url=url, timeout=WAIT_S) as client:
        body = {"name": "lent", "session": app.code}
        return (await client.post("/v1/tool-calls", json=body, headers={"traceparent": PARENT})).json()


RELOADED = """
import asyncio, json
from pathlib import Path
from toolplug import CallContext, Principal, ToolCall, open_host

ME = CallContext(Principal(scopes=frozenset({"tools:call", "admin"})))
FILE = Path("providers.yaml")

def write(**entry):
    config = json.loads(FILE.read_text())
    config["providers"]["otel"].update(entry)
    FILE.write_text(json.dumps(config))

async def call(host):
    return (await host.executor_for(ME.principal).execute(ToolCall("c1", "traced", {}), ME)).output

async def main():
    async with open_host(FILE) as host:
        print(await call(host) != "none")
        for entry in ({"enabled": False}, {"enabled": True}, {"flush_timeout_s": 1}):
            write(**entry)
            await host.reload(by=ME.principal)
            print(await call(host) != "none")

asyncio.run(main())
"""


def test_a_reload_switches_spans_off_and_on(commands: Any) -> None:
    done = commands.script(RELOADED, **TO_TERMINAL)
    assert done.returncode == 0, done.stderr
    assert re.findall("True|False", done.stdout) == ["True", "False", "True", "True"]
    both = ["work", "execute_tool traced"]  # the provider of the process stays, and exports the tool's own spans
    assert [span["name"] for span in commands.exported(done.stdout)] == [*both, "work", *both, *both]
