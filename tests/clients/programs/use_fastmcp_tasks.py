"""FastMCP's client with its tasks: `use_fastmcp_tasks.py URL FILE`; one JSON object of what it gets."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.exceptions import ToolError
from fastmcp_tasks import call_tool_task

Path(sys.argv[2]).unlink(missing_ok=True)


async def answer(message: str, response_type: Any, params: Any, context: Any) -> Any:
    """Answer each question."""
    return {"seats": 3}


async def main() -> None:
    """Call the tools of the server, one in the foreground and one by its handle."""
    said: dict[str, object] = {}
    async with Client(sys.argv[1], elicitation_handler=answer) as client:
        task = await call_tool_task(client, "wait_for", {"file": sys.argv[2]})
        said["first"] = (await task.status()).status
        Path(sys.argv[2]).touch()
        said["waited"] = (await task.result()).content[0].text
        said["asked"] = (await client.call_tool("book", {})).content[0].text
        ended = await call_tool_task(client, "wait_for", {"file": f"{sys.argv[2]}.never"})
        await ended.cancel()
        said["cancelled"] = (await ended.wait(timeout=30)).status
        try:
            await client.call_tool("fail_late", {})
        except ToolError as error:
            said["failed"] = str(error)
    print(json.dumps(said))


asyncio.run(main())
