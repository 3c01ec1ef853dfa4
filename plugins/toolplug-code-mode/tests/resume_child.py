"""Goes on with a paused script when it is told to: `python resume_child.py FOLDER CODE TICKET`; prints its answer."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from toolplug import CallContext, FunctionProvider, Principal, open_host, tool

FOLDER, CODE, TICKET = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
ADA = Principal("ada", scopes=frozenset({"tools:call"}))


class Shop(FunctionProvider):
    """Writes what was ordered into a file."""

    @tool
    async def order(self, item: str) -> str:
        """Order an item."""
        with (FOLDER / "effects").open("a") as file:
            file.write(f"{item}\n")
        return item


async def main() -> None:
    """Go on with the script, and print what came of it."""
    config = {
        "store": f"sqlite:///{FOLDER / 'store.db'}?shared=true",
        "providers": {
            "code": {"enabled": True, "type": "code_mode", "callers": "all"},
            "shop": {"tools": {"order": "ask"}},
        },
    }
    async with open_host(config, environ={}, providers={"shop": Shop()}) as host:
        tools = host.executor_for(ADA)
        print("ready", flush=True)
        sys.stdin.readline()
        result = await tools.call("run_code", {"code": CODE}, CallContext(ADA, approval=TICKET))
        asked = result.metadata.get("approval")
        print(json.dumps({"output": result.output, "approval": asked["id"] if isinstance(asked, dict) else None}))


asyncio.run(main())
