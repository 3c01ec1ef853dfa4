"""A real HTTP API that serves its own OpenAPI document, and hosts that have it as tools."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from toolplug import CallContext, Host, ToolCall, ToolResult, open_host

Json = dict[str, Any]


class Api:
    """What the API says of itself, and the requests that have reached it. A test changes `document` as it likes.

    `answer` is what `/answer` gives.
    """

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.document: Json | str = {}
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.answer = Response()

    @property
    def last(self) -> Request:
        return self.requests[-1]

    @property
    def sent(self) -> str:
        """Method, path and query of the last request, as they were sent."""
        scope = self.last.scope
        query = scope["query_string"].decode()
        return f"{scope['method']} {scope['raw_path'].decode()}" + (f"?{query}" if query else "")

    def operations(self, paths: Json, **others: object) -> Json:
        """Make a document of these paths the API's own."""
        self.document = {"openapi": "3.1.0", "info": {"title": "API", "version": "1"}, "paths": paths, **others}
        return self.document


def get(**fields: object) -> Json:
    """A path with one GET operation."""
    return {"get": {"operationId": "look", "responses": {}, **fields}}


@contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """Serve on a free port of the loopback address, in a thread; gives the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [server_socket]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server_socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def api() -> Iterator[Api]:
    """An API that answers `/status/N` with that status, `/text` with text, all else with what it was sent."""
    served = Api()

    async def document(request: Request) -> Response:
        if isinstance(served.document, str):
            return PlainTextResponse(served.document)
        return JSONResponse(served.document)

    async def echo(request: Request) -> Response:
        served.requests.append(request)
        served.bodies.append(await request.body())
        path = request.path_params["path"]
        if path.startswith("status/"):
            headers = {"Retry-After": "7"} if path.endswith(("429", "503")) else {}
            return JSONResponse({"why": "because"}, int(path[7:10]), headers)
        if path == "answer":
            return served.answer
        if path == "text":
            return PlainTextResponse("plain words")
        if path == "nothing":
            return Response(status_code=204)
        if path == "image":
            return Response(b"\x89PNG", media_type="image/png")
        if path == "cookie":
            return JSONResponse({}, headers={"Set-Cookie": "session=of-somebody-else"})
        if path == "huge":
            return PlainTextResponse("x" * (5 * 1024 * 1024))
        if path == "away":
            return RedirectResponse(request.query_params["to"])
        return JSONResponse({"path": f"/{path}", "items": [{"id": 1, "secret": "s"}, {"id": 2, "secret": "t"}]})

    routes = [
        Route("/openapi.json", document),
        Route("/moved.json", lambda request: RedirectResponse(request.query_params["to"])),
        Route("/{path:path}", echo, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]
    with listening(Starlette(routes=routes)) as url:
        served.url = url
        yield served


class Tools:
    """The tools of an entered host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def schema(self, name: str) -> Json:
        return self.host.registry.catalog[name].definition.parameters.value

    def names(self) -> list[str]:
        return list(self.host.registry.catalog)

    async def call(self, name: str, arguments: Mapping[str, object] | None = None, **credentials: str) -> ToolResult:
        context = CallContext(credentials=credentials)
        return await self.host.registry.execute(ToolCall("c", name, arguments or {}), context)


Serve = Callable[..., AbstractAsyncContextManager[Tools]]


@pytest.fixture
def serve(tmp_path: Path, api: Api) -> Serve:
    """Opens a host with one provider; `document` is the API's own unless it is given."""

    @asynccontextmanager
    async def opened(egress: Json | None = None, **settings: object) -> AsyncGenerator[Tools]:
        entry = {"type": "openapi", "enabled": True, "document": f"{api.url}/openapi.json", **settings}
        config = {"providers": {"api": entry}, "store": "memory://", "egress": egress or {}}
        path = tmp_path / "providers.yaml"
        path.write_text(json.dumps(config))
        async with open_host(path) as host:
            yield Tools(host)

    return opened


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
