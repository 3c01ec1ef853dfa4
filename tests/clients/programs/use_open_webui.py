"""Open WebUI: its server, asked as its pages ask it, with the host as a connection; the function is a tool of its own.

With `chat` the connection is as it is by default; else its API type is Responses. It always streams, as its pages do:
without a stream it makes no calls. What it asks for titles and tags is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
import uuid
from typing import Any

import httpx
from job_loop import Job, run

START_S = 300
ANSWER_S = 60
SETTINGS = {
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "only-for-trying",
    "OFFLINE_MODE": "True",
    "ENABLE_OLLAMA_API": "False",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "RAG_EMBEDDING_ENGINE": "openai",  # else it loads a model
}
CITY = '''
class Tools:
    def city(self) -> str:
        """Find the city."""
        return "Cork"
'''
API = {"enable": True, **({} if "chat" in sys.argv else {"api_type": "responses"})}


class Server:
    """The program, started at the first job."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self.folder = tempfile.TemporaryDirectory()
        self.process: asyncio.subprocess.Process | None = None

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; the answer's value."""
        client = self._client or await self._start()
        answer = await client.request(method, path, json=body)
        if answer.is_error:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:500]}")
        return answer.json()

    async def _start(self) -> httpx.AsyncClient:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = f"from open_webui import app; app(['serve', '--host', '127.0.0.1', '--port', '{port}'])"
        environ = {**os.environ, **SETTINGS, "DATA_DIR": self.folder.name, "HOME": self.folder.name}
        nothing = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", words),
            cwd=self.folder.name,
            env=environ,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_S)
        async with asyncio.timeout(START_S):
            while True:
                try:
                    (await client.get("/health")).raise_for_status()
                    break
                except httpx.HTTPError:
                    await asyncio.sleep(0.5)
        signed_in = await client.post("/api/v1/auths/signin", json={"email": "admin@localhost", "password": "admin"})
        client.headers["authorization"] = f"Bearer {signed_in.json()['token']}"
        self._client = client
        tool = {"id": "city", "name": "city", "content": CITY, "meta": {"description": ""}}
        await self.ask("POST", "/api/v1/tools/create", tool)
        return client


SERVER = Server()


async def converse(job: Job) -> list[str]:
    model = job["model"]
    servers = job.get("servers", [])
    if servers:
        await SERVER.ask("POST", "/api/v1/configs/tool_servers", {"TOOL_SERVER_CONNECTIONS": servers})
    connection = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [job["url"]],
        "OPENAI_API_KEYS": [job["key"]],
        "OPENAI_API_CONFIGS": {"0": {**API, "model_ids": [model]}},
    }
    await SERVER.ask("POST", "/openai/config/update", connection)
    await SERVER.ask("GET", "/api/models?refresh=true")
    messages: dict[str, Any] = {}
    texts: list[str] = []
    chat = (await SERVER.ask("POST", "/api/v1/chats/new", {"chat": {"title": "t", "models": [model]}}))["id"]
    last: str | None = None
    for prompt in job["prompts"]:
        said, answered = str(uuid.uuid4()), str(uuid.uuid4())
        if last is not None:
            messages[last]["childrenIds"] = [said]
        question = {"id": said, "role": "user", "content": prompt, "models": [model], "timestamp": 1}
        messages[said] = {**question, "parentId": last, "childrenIds": [answered]}
        answer = {"id": answered, "role": "assistant", "content": "", "model": model, "done": False, "timestamp": 1}
        messages[answered] = {**answer, "parentId": said, "childrenIds": []}
        history = {"messages": messages, "currentId": answered}
        await SERVER.ask(
            "POST", f"/api/v1/chats/{chat}", {"chat": {"title": "t", "models": [model], "history": history}}
        )
        asked = {
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": prompt}],
            "tool_ids": job.get("tools", ["city"] if job["own"] else []),
            "params": {"function_calling": "native"},
            "session_id": "matrix",
            "chat_id": chat,
            "id": answered,
            "parent_id": said,
            "user_message": messages[said],
            "background_tasks": {},
        }
        await SERVER.ask("POST", "/api/chat/completions", asked)
        messages = await finish(chat, answered)
        texts.append(messages[answered]["content"])
        last = answered
    return texts


async def finish(chat: str, answered: str) -> dict[str, Any]:
    """Wait for the end of an answer, which is made in the background; the messages of the chat."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            messages = (await SERVER.ask("GET", f"/api/v1/chats/{chat}"))["chat"]["history"]["messages"]
            message = messages[answered]
            if message.get("error"):
                raise RuntimeError(json.dumps(message["error"]))
            if message.get("done"):
                return messages
            await asyncio.sleep(0.1)


try:
    run(converse)
finally:
    if SERVER.process is not None:
        SERVER.process.kill()
    SERVER.folder.cleanup()
