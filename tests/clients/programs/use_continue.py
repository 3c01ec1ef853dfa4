"""Continue: its command line over chat completions, which streams, a process for each prompt.

Node and the program are the arguments. Its own functions are those of an MCP server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from job_loop import Job, run

SERVER = {"name": "places", "command": sys.executable, "args": [str(Path(__file__).with_name("city_server.py"))]}


async def converse(job: Job) -> list[str]:
    model = {"name": "toolplug", "provider": "openai", "model": job["model"], "apiBase": job["url"]}
    settings: dict[str, Any] = {"name": "matrix", "version": "1.0.0", "schema": "v1"}
    settings["models"] = [{**model, "apiKey": job["key"], "roles": ["chat"]}]
    if job["own"]:
        settings["mcpServers"] = [SERVER]
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "config.yaml")
        file.write_text(json.dumps(settings), "utf-8")
        texts: list[str] = []
        for prompt in job["prompts"]:
            goes_on = ["--resume"] if texts else []
            texts.append(await ask(home, prompt, "--config", str(file), *goes_on))
        return texts


async def ask(home: str, prompt: str, *options: str) -> str:
    command = (*sys.argv[1:], "-p", prompt, "--allow", "*", *options)
    environ = {**os.environ, "HOME": home, "CONTINUE_GLOBAL_DIR": home}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=home, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    said, failed = await process.communicate()
    if process.returncode:
        raise RuntimeError((said + failed).decode())
    return said.decode().strip()


run(converse)
