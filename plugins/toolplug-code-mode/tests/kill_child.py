"""Forks processes that run scripts until they are killed: `python kill_child.py FOLDER`.

For each number on its input a process runs the scripts from that one on. The output has its id, `open` once its host is
open, what becomes of each script, and `gone`. Starting Python and its modules anew would take four times as long.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from toolplug import CallContext, FunctionProvider, Principal, open_host, tool
from toolplug.errors import ApiError
from toolplug_code_mode import runs

FOLDER = Path(sys.argv[1])
ADA = Principal("ada", scopes=frozenset({"tools:call"}))
BEA = Principal("bea", scopes=frozenset({"approvals:write"}))
CODE = """
await order(item="{n}-a")
await ask(item="{n}-b")
await order(item="{n}-c")
await ask(item="{n}-d")
"{n}"
"""
# What a host imports as it opens: the processes have it already. None of it begins a thread.
for module in (
    "cryptography.hazmat.primitives.ciphers.aead",
    "jsonschema_rs",
    "toolplug.parts.approvals.running",
    "toolplug.parts.mcp.part",
    "toolplug.parts.responses.part",
    "toolplug.parts.sessions.running",
    "toolplug.sqlite.store",
    "toolplug_code_mode.provider",
):
    import_module(module)
runs.LEASE_S, runs.RENEWED_EVERY_S = 0.15, 0.05


class Shop(FunctionProvider):
    """Writes what was ordered into a file."""

    @tool
    async def order(self, item: str) -> str:
        """Order an item."""
        with (FOLDER / "effects").open("a") as file:
            file.write(f"{item}\n")
        return item

    @tool
    async def ask(self, item: str) -> str:
        """Order an item once a person agrees."""
        return await self.order(item)


def remember(n: int, ticket: str) -> None:
    """Keep the ticket of a script, as a caller has it that outlives the host: it gets the end of its run, once told."""
    (FOLDER / "ticket.new").write_text(f"{n} {ticket}")
    (FOLDER / "ticket.new").replace(FOLDER / "ticket")


def recall(n: int) -> str | None:
    """Return the ticket of a script that was interrupted; None for one that begins."""
    kept = (FOLDER / "ticket").read_text().split() if (FOLDER / "ticket").exists() else []
    return kept[1] if kept[:1] == [str(n)] else None


async def run_scripts(first: int) -> None:
    """Run scripts, each until it has ended, and write what became of it."""
    config = {
        "store": f"sqlite:///{FOLDER / 'store.db'}",
        # A process that is killed between a question and the pause of its script leaves a question that nobody needs.
        "approvals": {"life": "20s"},
        "providers": {
            "code": {"enabled": True, "type": "code_mode", "callers": "all"},
            "shop": {"tools": {"ask": "ask"}},
        },
    }
    async with open_host(config, environ={}, providers={"shop": Shop()}) as host:
        print("open", flush=True)
        tools = host.executor_for(ADA)
        for n in range(first, 1_000_000):
            ticket = recall(n)
            while True:
                result = await tools.call("run_code", {"code": CODE.format(n=n)}, CallContext(ADA, approval=ticket))
                asked = result.metadata.get("approval")
                if not isinstance(asked, dict):
                    break
                ticket = str(asked["id"])
                remember(n, ticket)
                with suppress(ApiError):  # one that was killed has decided already
                    await host.approvals.decide(ticket, "approve", BEA)
            print(json.dumps([n, result.status, result.output]), flush=True)


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        asyncio.run(run_scripts(int(line)))
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
