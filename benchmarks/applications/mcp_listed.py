"""An MCP server over pipes that lists as many tools as it is told, in plain Python: it starts in milliseconds.

`mcp_listed.py COUNT`; `hang` in place of the number: it never answers; `die`: it ends at once.
"""

import json
import sys

DESCRIPTION = "Look something up, and give what was found, at most so many lines of it. " * 3


def listed(count: int) -> list[dict[str, object]]:
    """Tools with a few parameters each."""
    properties = {name: {"type": "string", "description": "What it is about."} for name in ("query", "place", "kind")}
    schema = {"type": "object", "properties": properties, "required": ["query"]}
    return [{"name": f"tool_{index}", "description": DESCRIPTION, "inputSchema": schema} for index in range(count)]


def answered(request: dict[str, object], count: int) -> dict[str, object] | None:
    """The result of a request."""
    if request["method"] == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "listed", "version": "1"},
        }
    if request["method"] == "tools/list":
        return {"tools": listed(count)}
    if request["method"] == "tools/call":
        return {"content": [{"type": "text", "text": "done"}], "isError": False}
    return None


def main(mode: str) -> None:
    """Answer until the pipe is closed."""
    if mode == "die":
        sys.exit(3)
    for line in sys.stdin:
        request = json.loads(line)
        if mode == "hang" or "id" not in request:
            continue
        result = answered(request, int(mode))
        refused = {"error": {"code": -32601, "message": "Method not found"}}
        answer = {"jsonrpc": "2.0", "id": request["id"], **(refused if result is None else {"result": result})}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
