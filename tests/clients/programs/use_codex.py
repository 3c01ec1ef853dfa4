"""Codex: its app server, over standard input and output, with the host as a model provider; it always streams.

The program is the first argument. Functions of the client are dynamic tools of a thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

from job_loop import CITY, Job, run

PIPE = asyncio.subprocess.PIPE
TOOL = {"type": "function", "name": "city", "description": CITY["description"], "inputSchema": CITY["parameters"]}
OFF = ("shell_tool", "web_search_request", "apps", "plugins", "multi_agent", "skills", "unified_exec")


class AppServer:
    """Codex's app server: one JSON message a line, of JSON-RPC without its version."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0
        self._texts: list[str] = []

    async def ask(self, method: str, **params: object) -> Any:
        """Send a request, answer what the server asks meanwhile, and return its result."""
        self._number += 1
        await self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == self._number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]

    async def finish_turn(self) -> str:
        """Return the last message of the agent in the turn that runs."""
        self._texts.clear()
        while True:
            message = await self._receive()
            if message.get("method") == "turn/completed":
                turn = message["params"]["turn"]
                if turn["status"] != "completed":
                    raise RuntimeError(turn["error"])
                return self._texts[-1]

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message = json.loads(await self._process.stdout.readline())
        if message.get("method") == "item/tool/call":
            result = {"contentItems": [{"type": "inputText", "text": "Cork"}], "success": True}
            await self._send({"id": message["id"], "result": result})
        elif message.get("method") == "item/completed" and message["params"]["item"]["type"] == "agentMessage":
            self._texts.append(message["params"]["item"]["text"])
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()


async def converse(job: Job) -> list[str]:
    provider = {"name": "toolplug", "base_url": job["url"], "wire_api": "responses", "env_key": "TOOLPLUG_KEY"}
    settings = {
        "model": job["model"],
        "model_provider": "toolplug",
        **{f"model_providers.toolplug.{name}": value for name, value in provider.items()},
        "model_providers.toolplug.request_max_retries": 0,
        "model_providers.toolplug.stream_max_retries": 0,
    }
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "HOME": home, "CODEX_HOME": home, "TOOLPLUG_KEY": job["key"]}
        command = (sys.argv[1], "app-server", *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=home, env=environ, stdin=PIPE, stdout=PIPE, limit=1024 * 1024
        )
        try:
            return await talk(AppServer(process), job, home)
        finally:
            process.kill()
            await process.wait()


async def talk(server: AppServer, job: Job, folder: str) -> list[str]:
    await server.ask(
        "initialize", clientInfo={"name": "matrix", "version": "1"}, capabilities={"experimentalApi": True}
    )
    tools = [TOOL] if job["own"] else []
    thread = await server.ask("thread/start", cwd=folder, dynamicTools=tools, approvalPolicy="never")
    texts: list[str] = []
    for prompt in job["prompts"]:
        said = [{"type": "text", "text": prompt}]
        await server.ask("turn/start", threadId=thread["thread"]["id"], input=said)
        texts.append(await server.finish_turn())
    return texts


run(converse)
