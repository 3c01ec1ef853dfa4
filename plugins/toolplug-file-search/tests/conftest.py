"""A host with the provider, entered, and clients of two tenants that reach it over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import IO, Any

import httpx2
import pytest

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host
from toolplug.apart import ApartCallFailed, FunctionProcess
from toolplug.http import create_app
from toolplug_file_search.documents import reader as documents
from toolplug_file_search.documents.worker import answer

BASE = "http://127.0.0.1"
TOOLPLUG = Path(sys.executable).with_name("toolplug")
IN_HOST: dict[str, object] = {"run": {"process": False}}
"""By default the provider runs in a process of its own, which takes two seconds of CPU to start.

Tests that are about it, and those of owners, of a served host and of the contract, have one.
"""
LISTENS = re.compile(r"toolplug listening on (http://\S+)")


@dataclass(frozen=True)
class Tenant:
    """One tenant's way in: its HTTP client, and its tools as a host calls them."""

    name: str
    http: httpx2.AsyncClient
    host: Host

    async def call(self, tool: str, options: dict[str, object] | None = None, **arguments: object) -> ToolResult:
        me = Principal(subject=self.name, tenant=self.name, scopes=frozenset({"tools:call"}))
        context = CallContext(principal=me, options=options or {})
        return await self.host.executor_for(me).execute(ToolCall("c1", tool, arguments), context)

    async def found(self, query: str, **arguments: object) -> list[dict[str, Any]]:
        result = await self.call("file_search", query=query, **arguments)
        assert not result.is_error, result.output
        return json.loads(result.output)["results"]

    async def upload(self, name: str, content: str | bytes) -> str:
        answer = await self.http.post("/v1/files", files={"file": (name, content)}, data={"purpose": "assistants"})
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    async def store(self, **body: object) -> str:
        answer = await self.http.post("/v1/vector_stores", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    async def add(self, name: str, content: str | bytes, store: str | None = None) -> tuple[str, str]:
        """Upload into a vector store, a new one if none is given, and wait until it is read; both ids."""
        file = await self.upload(name, content)
        if store is None:
            store = await self.store(name="notes", file_ids=[file])
        else:
            answer = await self.http.post(f"/v1/vector_stores/{store}/files", json={"file_id": file})
            assert answer.status_code == 200, answer.text
        assert (await self.read(store, file))["status"] == "completed"
        return store, file

    async def read(self, store: str, file: str) -> dict[str, Any]:
        """The file in the store once it was read, or could not be.

        Here and in the other tests there is a pause between two questions, which would take the CPU from the reader.
        """
        while (member := await self.member(store, file))["status"] == "in_progress":  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
        return member

    async def member(self, store: str, file: str) -> dict[str, Any]:
        return (await self.http.get(f"/v1/vector_stores/{store}/files/{file}")).json()


@dataclass(frozen=True)
class Served:
    """An entered host and its two tenants."""

    host: Host
    one: Tenant
    two: Tenant

    def metric(self, name: str, **labels: str) -> float | None:
        return self.host.metrics.get_sample_value(name, labels)


Serve = Callable[..., AbstractAsyncContextManager[Served]]
Start = Callable[[], AbstractContextManager[tuple[str, subprocess.Popen[str]]]]


def written(folder: Path, **settings: object) -> Path:
    """A configuration file with these settings of the provider and a key for each tenant, `key-one` and `key-two`."""
    keys = [{"key": f"key-{name}", "subject": name, "tenant": name} for name in ("one", "two")]
    entry = {"enabled": True, **IN_HOST, **settings}
    config = {"providers": {"file_search": entry}, "auth": {"api_keys": keys}}
    path = folder / "providers.yaml"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Opens a host on the test's own folder; again, it is the same one restarted."""

    @asynccontextmanager
    async def served(**settings: object) -> AsyncGenerator[Served]:
        async with open_host(written(tmp_path, **settings)) as host:
            transport = httpx2.ASGITransport(create_app(host))
            clients: Sequence[httpx2.AsyncClient] = [
                httpx2.AsyncClient(transport=transport, base_url=BASE, headers={"Authorization": f"Bearer key-{name}"})
                for name in ("one", "two")
            ]
            async with clients[0], clients[1]:
                yield Served(host, Tenant("one", clients[0], host), Tenant("two", clients[1], host))

    return served


class KeptProcess:
    """What a host has of a process that reads documents: it goes on when that host is closed or has none to read."""

    def __init__(self, process: FunctionProcess) -> None:
        self._process = process
        self._stopped = False
        self.seconds = process.seconds

    def run(self, data: bytes, document: IO[bytes]) -> None:
        """Read a document."""
        if self._stopped:
            raise ApartCallFailed("stopped", "it was stopped")
        self._process.run(data, document)

    def rest(self) -> None:
        """Leave it as it is."""

    def stop(self) -> None:
        """Read no more for this host."""
        self._stopped = True

    close = stop


@pytest.fixture(scope="session")
def reading() -> Generator[FunctionProcess]:
    """The process of `reading_once`."""
    seconds, memory, most = documents.DEADLINE_S, documents.MAX_MEMORY, documents.MAX_ANSWER
    with FunctionProcess(answer, seconds=seconds, memory=memory, max_bytes=most) as process:
        yield process


@pytest.fixture
def reading_once(reading: FunctionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts with the provider in their own process read documents with one process for all tests.

    To load what tells the languages apart takes each a second of CPU; tests of the process have their own.
    """
    monkeypatch.setattr(documents, "FunctionProcess", lambda *_, **__: KeptProcess(reading))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts `toolplug serve` on the test's own folder and a free port; again, it is the same one restarted."""
    (tmp_path / "providers.yaml").write_text(
        "providers: {file_search: {enabled: true}}\nauth: {api_keys: [{key: key-one, subject: one, tenant: one}]}\n"
    )

    @contextmanager
    def started() -> Generator[tuple[str, subprocess.Popen[str]]]:
        command = [str(TOOLPLUG), "serve", "--port", "0"]
        with (
            subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process,
            ThreadPoolExecutor(1) as reader,
        ):
            assert process.stderr is not None
            try:
                lines: list[str] = []
                while not (found := LISTENS.search(lines[-1] if lines else "")):
                    lines.append(process.stderr.readline())
                    assert lines[-1], "".join(lines)
                rest = reader.submit(process.stderr.read)  # a full pipe would hold the server
                yield found[1], process
            finally:
                process.terminate()
                process.wait(timeout=30)
            rest.result()

    return started


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


TOPICS = (("otter", "river animal", "swims"), ("vacation", "holiday", "time off"), ("kettle", "boils water"))


def embedded(text: str) -> list[float]:
    found = [1.0 if any(word in text.lower() for word in topic) else 0.01 for topic in TOPICS]
    return [*found, 0.1]


class FakeModels(ThreadingHTTPServer):
    """Answers, with `answer` instead if it is set; `asked` are the paths and bodies of its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def passages(self) -> list[str]:
        """The texts that were embedded, by requests with several or with a heading."""
        return [text for path, body in self.asked if path.endswith("embeddings") for text in body["input"]]


class _Handler(BaseHTTPRequestHandler):
    server: FakeModels

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        answer = self.server.answer or json.dumps(self._answered(body)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answered(self, body: dict[str, Any]) -> object:
        if self.path.endswith("rerank"):
            texts = body["documents"]
            return {"results": [{"index": place, "relevance_score": len(text)} for place, text in enumerate(texts)]}
        return {"data": [{"index": i, "embedding": embedded(text)} for i, text in enumerate(body["input"])]}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def models() -> Generator[FakeModels]:
    """A server of embeddings and ranks on a free port: texts about the same animal are near, whatever they say."""
    with FakeModels() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
