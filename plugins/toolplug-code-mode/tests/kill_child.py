"""Runs scripts until it is killed: `python kill_child.py FOLDER FIRST`; writes what becomes of each."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from toolplug import CallContext, FunctionProvider, Principal, open_host, tool
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
runs.LEASE_S, runs.RENEWED_EVERY_S = 0.4, 0.1


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


async def main() -> None:
    """Run scripts, each until it has ended, and write what became of it."""
    config = {
        "store": f"sqlite:///{FOLDER / 'store.db'}",
        "providers": {
            "code": {"enabled": True, "type": "code_mode", "callers": "all"},
            "shop": {"tools": {"ask": "ask"}},
        },
    }
    async with open_host(config, environ={}, providers={"shop": Shop()}) as host:
        tools = host.executor_for(ADA)
        for n in range(int(sys.argv[2]), 1_000_000):
            ticket = None
            while True:
                result = await tools.call("run_code", {"code": CODE.format(n=n)}, CallContext(ADA, approval=ticket))
                asked = result.metadata.get("approval")
                if not isinstance(asked, dict):
                    break
                ticket = str(asked["id"])
                waiting = {each.id: each.state for each in await host.approvals.waiting("default")}
                if waiting.get(ticket) == "waiting":
                    await host.approvals.decide(ticket, "approve", BEA)
            print(json.dumps([n, result.status, result.output]), flush=True)


asyncio.run(main())
