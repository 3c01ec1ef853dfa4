"""A web on the loopback address: search services that answer what they once did, pages, a model, and a real searx."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from toolplug import CallContext, Host, Principal, ToolCall, ToolResult, open_host

Json = dict[str, Any]
Answer = Callable[[Request], Response]

SEARXNG = json.loads((Path(__file__).parent / "recorded" / "searxng.json").read_text("utf-8"))
SEARX = "/usr/share/python3-searx"


class Web:
    """Everything that is asked. A test sets the answer of the search services, and pages by their path."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.clear()

    def clear(self) -> None:
        self.requests: list[Request] = []
        self.bodies: list[Json] = []
        self.search: Answer = lambda request: JSONResponse(SEARXNG)
        self.pages: dict[str, Answer] = {}
        self.model: list[Json] = []

    def index(self, hits: list[Json]) -> None:
        """Set what the index of searx has."""
        self.pages["index"] = lambda request: JSONResponse({"hits": hits})

    @property
    def asked(self) -> Mapping[str, str]:
        """The parameters of the last search."""
        return self.requests[-1].query_params


@contextmanager
def serving(app: ASGIApp, *, lifespan: bool = False) -> Iterator[str]:
    """Serve on a free port of the loopback address, in a thread; gives the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        config = uvicorn.Config(
            app,
            lifespan="on" if lifespan else "off",
            log_level="critical",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [server_socket]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server_socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def listening() -> Callable[..., AbstractContextManager[str]]:
    """Serves an application while its block runs."""
    return serving


@pytest.fixture(scope="session")
def whole_web() -> Iterator[Web]:
    found = Web()

    async def search(request: Request) -> Response:
        found.requests.append(request)
        if request.method == "POST":
            found.bodies.append(await request.json())
        return found.search(request)

    async def page(request: Request) -> Response:
        found.requests.append(request)
        return found.pages[request.path_params["path"]](request)

    async def model(request: Request) -> Response:
        found.bodies.append(await request.json())
        message = {"role": "assistant", "content": None, **found.model.pop(0)}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason, "delta": message}
        answer = {"id": "1", "created": 1, "model": "m", "choices": [choice]}
        if not found.bodies[-1].get("stream"):
            return JSONResponse({**answer, "object": "chat.completion"})
        chunk = json.dumps({**answer, "object": "chat.completion.chunk"})
        return Response(f"data: {chunk}\n\ndata: [DONE]\n\n", media_type="text/event-stream")

    routes = [
        Route("/search", search, methods=["GET", "POST"]),
        Route("/res/v1/web/search", search),
        Route("/v1/chat/completions", model, methods=["POST"]),
        Route("/{path:path}", page),
    ]
    with serving(Starlette(routes=routes)) as url:
        found.url = url
        yield found


@pytest.fixture
def web(whole_web: Web) -> Web:
    whole_web.clear()
    return whole_web


class Tools:
    """The tools of an entered host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def call(
        self, name: str, options: Json | None = None, tenant: str = "default", **arguments: object
    ) -> ToolResult:
        me = Principal(tenant=tenant, scopes=frozenset({"tools:call"}))
        context = CallContext(principal=me, options=options or {})
        return await self.host.executor_for(me).execute(ToolCall("c", name, arguments), context)

    async def search(self, query: str = "otters", **given: Any) -> Json:
        result = await self.call("web_search", query=query, **given)
        assert not result.is_error, result.output
        return json.loads(result.output)

    async def urls(self, query: str = "otters", **given: Any) -> list[str]:
        return [each["url"] for each in (await self.search(query, **given))["results"]]

    async def page(self, url: str, **given: Any) -> Json:
        result = await self.call("open_page", url=url, **given)
        assert not result.is_error, result.output
        return json.loads(result.output)

    async def refused(self, url: str, **given: Any) -> str:
        result = await self.call("open_page", url=url, **given)
        assert result.status == "tool_error"
        return result.output

    async def diagnosis(self) -> list[str]:
        """What `toolplug doctor` says of the provider."""
        (running,) = self.host.registry.running().values()
        return [problem.message for problem in await running.diagnosis()]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.host.metrics.get_sample_value(name, labels)


Serve = Callable[..., AbstractAsyncContextManager[Tools]]


@pytest.fixture
def serve(tmp_path: Path, web: Web) -> Serve:
    """Opens a host with the provider; its backend is a searxng at the loopback web unless another is given."""

    @asynccontextmanager
    async def opened(allow: tuple[str, ...] = ("loopback",), **settings: object) -> AsyncGenerator[Tools]:
        entry = {"enabled": True, "backend": "searxng", "url": web.url, **settings}
        config = {"providers": {"web_search": entry}, "store": "memory://", "egress": {"allow": list(allow)}}
        path = tmp_path / "providers.yaml"
        path.write_text(json.dumps(config))
        async with open_host(path, environ={}) as host:
            yield Tools(host)

    return opened


@pytest.fixture(scope="session")
def searx(tmp_path_factory: pytest.TempPathFactory, whole_web: Web) -> Iterator[str]:
    """A real searx of Debian, whose only engine is an index at the loopback web; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = {
        "name": "index",
        "engine": "json_engine",
        "shortcut": "ix",
        "search_url": f"{whole_web.url}/index?q={{query}}",
        "results_query": "hits",
        "url_query": "url",
        "title_query": "title",
        "content_query": "text",
        "enable_http": True,
    }
    other = {**engine, "name": "other", "shortcut": "oth", "search_url": f"{whole_web.url}/other?q={{query}}"}
    names = ("git_url", "git_branch", "issue_url", "docs_url", "public_instances", "wiki_url", "twitter_url")
    settings = {
        "general": {"debug": False, "instance_name": "test"},
        "brand": dict.fromkeys(names, ""),
        "search": {"safe_search": 0, "autocomplete": "", "default_lang": "", "ban_time_on_fail": 0,
                   "max_ban_time_on_fail": 0, "prefer_configured_language": False},
        "server": {"port": port, "bind_address": "127.0.0.1", "secret_key": "of-a-test", "base_url": False,
                   "image_proxy": False, "http_protocol_version": "1.1", "method": "GET", "default_http_headers": {}},
        "ui": {"static_path": f"{SEARX}/static", "templates_path": f"{SEARX}/templates", "default_theme": "oscar",
               "default_locale": "", "theme_args": {"oscar_style": "logicodev"}},
        "outgoing": {"request_timeout": 5.0, "useragent_suffix": "", "pool_connections": 10, "pool_maxsize": 10},
        "engines": [engine, {**other, "disabled": True}],
        "locales": {"en": "English"},
        "doi_resolvers": {"oadoi.org": "https://oadoi.org/"},
        "default_doi_resolver": "oadoi.org",
    }  # fmt: skip
    file = tmp_path_factory.mktemp("searx") / "settings.yml"
    file.write_text(json.dumps(settings))
    command = ["/usr/bin/searx-run"]
    environ = {"SEARX_SETTINGS_PATH": str(file), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            yield url
        finally:
            process.kill()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the server answers; it prints nothing that could be waited for."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            httpx2.get(f"{url}/config", timeout=5)
        except httpx2.TransportError:
            assert process.poll() is None, "searx has ended"
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"searx does not answer at {url}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
