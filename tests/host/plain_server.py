"""An MCP server over pipes in forty lines of Python, which starts in milliseconds: the protocol of 2025-11-25."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPT = """
import json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
with (folder / "starts").open("a") as starts:
    starts.write(f"{os.getpid()}\\n")


at_start = json.loads((folder / "tools.json").read_text()) if "fixed" in sys.argv else None


def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": at_start or json.loads((folder / "tools.json").read_text())}
    if method == "tools/call":
        said = {"pid": os.getpid(), "name": params["name"], **params["arguments"]}
        return {"content": [{"type": "text", "text": json.dumps(said, sort_keys=True)}], "isError": False}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    if result is None:
        say(id=request["id"], error={"code": -32601, "message": "Method not found"})
    else:
        say(id=request["id"], result=result)
    if request["method"] == "tools/call" and request["params"]["arguments"].get("die"):
        os._exit(3)
    if request["method"] == "tools/call" and request["params"]["arguments"].get("changed"):
        say(method="notifications/tools/list_changed")
"""


class PlainServer:
    """The files of one such server below a folder of its own; one that is `fixed` lists what it found at its start."""

    def __init__(self, folder: Path, *tools: str, fixed: bool = False) -> None:
        self._fixed = ["fixed"] if fixed else []
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "server.py").write_text(SCRIPT)
        self.lists(*tools)

    @property
    def entry(self) -> dict[str, object]:
        """What stands under `mcp_servers` for it."""
        return {
            "command": sys.executable,
            "args": ["-S", str(self.folder / "server.py"), str(self.folder), *self._fixed],
        }

    @property
    def starts(self) -> Sequence[int]:
        """The process id of every start, in order."""
        starts = self.folder / "starts"
        return [int(line) for line in starts.read_text().split()] if starts.exists() else []

    def lists(self, *tools: str, description: str = "Does it.") -> None:
        """List these tools from now on."""
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        wire = [{"name": name, "description": description, "inputSchema": schema} for name in tools]
        self.lists_bytes(json.dumps(wire).encode())

    def lists_bytes(self, definitions: bytes) -> None:
        """List the tools of a JSON list of definitions from now on."""
        (self.folder / "tools.json.new").write_bytes(definitions)
        os.replace(self.folder / "tools.json.new", self.folder / "tools.json")

    def runs(self) -> bool:
        """Is any process of it alive."""
        return any(_alive(pid) for pid in self.starts)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
