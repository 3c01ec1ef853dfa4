"""Searches: what each backend is asked, what a model gets, and what their failures become."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from toolplug import ProviderContext, ToolError
from toolplug.testing.http_recording import RecordedRequest, recorded_http
from toolplug_web_search.backends import BackendUnavailable, Hit, Query
from toolplug_web_search.services import SERVICES, DdgsBackend
from toolplug_web_search.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Answer = Callable[[Request], Response]
Serve = Callable[..., Any]
Web = Any
Json = dict[str, Any]

OTTERS = "https://otters.example/"
ELBE = "https://en.rivers.example/elbe?page=2"
ZOO = "https://zoo.example/otters"


RECORDED = Path(__file__).parent / "recorded"


@asynccontextmanager
async def replayed(name: str) -> AsyncIterator[Sequence[RecordedRequest]]:
    """Answer as the service did. Gives the requests, which have to be those of the file."""
    with recorded_http(RECORDED / f"{name}.yaml") as recording:
        yield recording.requests


@pytest.mark.requirement("I2-8-web-search")
async def test_results_have_title_url_snippet_and_date_and_each_page_once(serve: Serve) -> None:
    async with serve() as tools:
        result = await tools.call("web_search", query="otters")
    assert result.structured == {
        "results": [
            {
                "title": "All about otters",
                "url": OTTERS,
                "snippet": "Otters are semiaquatic mammals.",
                "date": "2026-01-02",
            },
            {"title": "The Elbe", "url": ELBE, "snippet": "Otters live at the Elbe."},
            {"title": ZOO, "url": ZOO, "snippet": "Opening hours"},
        ]
    }
    assert result.metadata == {
        "action": {
            "type": "search",
            "query": "otters",
            "queries": ["otters"],
            "sources": [{"type": "url", "url": url} for url in (OTTERS, ELBE, ZOO)],
        },
        "citations": [
            {"url": OTTERS, "title": "All about otters"},
            {"url": ELBE, "title": "The Elbe"},
            {"url": ZOO, "title": ZOO},
        ],
    }


@pytest.mark.requirement("I2-8-web-search-options")
async def test_a_call_chooses_how_many_of_which_domains_in_which_language_and_how_old(serve: Serve, web: Web) -> None:
    async with serve(max_results=2) as tools:
        assert await tools.urls() == [OTTERS, ELBE]
        assert dict(web.asked) == {"q": "otters", "format": "json", "language": "all"}
        assert await tools.urls(max_results=1) == [OTTERS]
        assert await tools.urls(domains=["rivers.example", "zoo.example"], language="de-AT", time_range="month") == [
            ELBE,
            ZOO,
        ]
        assert dict(web.asked) == {
            "q": "(site:rivers.example OR site:zoo.example) otters",
            "format": "json",
            "language": "de-AT",
            "time_range": "month",
        }
        assert await tools.urls(exclude_domains=["OTTERS.example", "zoo.example"]) == [ELBE]
        assert web.asked["q"] == "-site:otters.example -site:zoo.example otters"
        assert await tools.urls(domains=["ters.example"]) == []
        assert (await tools.call("web_search", query="")).status == "invalid_arguments"
        assert (await tools.call("web_search", query="a", max_results=21)).status == "invalid_arguments"


@pytest.mark.requirement("I2-8-web-search-options")
async def test_domains_of_the_operator_the_stub_and_the_call_narrow_one_another(serve: Serve) -> None:
    async with serve(allowed_domains=["otters.example", "rivers.example"], blocked_domains=["zoo.example"]) as tools:
        assert await tools.urls() == [OTTERS, ELBE]
        assert await tools.urls(domains=["zoo.example"]) == []
        stub: Json = {"filters": {"allowed_domains": ["rivers.example", "zoo.example"]}}
        assert await tools.urls(options=stub) == [ELBE]
        assert await tools.urls(options=stub, domains=["otters.example"]) == []
        assert await tools.urls(options={"filters": {"blocked_domains": ["rivers.example"]}}) == [OTTERS]


@pytest.mark.requirement("I2-8-web-search-options")
async def test_a_stub_sets_the_place_of_the_user_and_the_size_of_snippets(serve: Serve, web: Web) -> None:
    row = {"url": OTTERS, "title": "Long", "content": "word " * 1000}
    web.search = lambda request: JSONResponse({"results": [row]})
    lengths: list[int] = []
    async with serve(language="de") as tools:
        for size in ("low", "medium", "high"):
            options = {"search_context_size": size, "user_location": {"type": "approximate", "country": "at"}}
            [found] = (await tools.search(options=options))["results"]
            lengths.append(len(found["snippet"]))
    assert lengths == [201, 601, 2001]
    assert web.asked["language"] == "de-AT"


@pytest.mark.requirement("I2-8-web-search-cache")
async def test_an_answer_is_kept_for_its_tenant_with_its_age_and_serves_without_the_web(serve: Serve, web: Web) -> None:
    offline = {"external_web_access": False}
    async with serve() as tools:
        assert await tools.search(options=offline) == {
            "results": [],
            "note": "external_web_access is false, and no earlier search for this is cached",
        }
        assert "age_s" not in await tools.search()
        assert (await tools.search(max_results=1))["age_s"] == 0
        assert await tools.urls(options=offline) == [OTTERS, ELBE, ZOO]
        assert len(web.requests) == 1
        assert "age_s" not in await tools.search(tenant="other")
        assert "age_s" not in await tools.search("beavers")
        assert len(web.requests) == 3
        assert tools.metric("web_search_cached_total", kind="search") == 2
        assert tools.metric("web_search_requests_total", backend="searxng", outcome="found") == 3
        assert tools.metric("web_search_request_seconds_count", backend="searxng") == 3
    async with serve(cache_s=0) as tools:
        await tools.search()
        assert "age_s" not in await tools.search()
        assert await tools.urls(options=offline) == [OTTERS, ELBE, ZOO]


@pytest.mark.requirement("I2-8-web-search-backends")
async def test_brave_is_asked_with_its_key_and_its_parameters(serve: Serve) -> None:
    place = {
        "type": "approximate",
        "country": "AT",
        "city": "Graz",
        "region": "Österreich",
        "timezone": "Europe/Vienna",
    }
    async with replayed("brave") as requests, serve(backend="brave", url=None, api_key="s3cret") as tools:
        found = await tools.search(options={"user_location": place}, language="de", time_range="week")
        too_long = await tools.call("web_search", query="x" * 401)
    assert found["results"] == [
        {
            "title": "Otter - Wikipedia",
            "url": "https://en.wikipedia.example/wiki/Otter",
            "snippet": "Otters are carnivorous mammals in the subfamily Lutrinae & more. … They hold hands.",
            "date": "2025-11-20",
        },
        {"title": "Sea otter", "url": "https://ocean.example/sea-otter", "snippet": "Sea otters float."},
    ]
    [request] = requests
    assert {name: text for name, text in request.headers.items() if name.startswith("x-")} == {
        "x-subscription-token": "REDACTED",
        "x-loc-city": "Graz",
        "x-loc-country": "AT",
        "x-loc-timezone": "Europe/Vienna",
    }
    assert too_long.output == "Brave Search takes queries of at most 400 characters; shorten it"


@pytest.mark.requirement("I2-8-web-search-backends")
async def test_tavily_is_asked_with_its_key_and_its_parameters(serve: Serve) -> None:
    async with replayed("tavily") as requests, serve(backend="tavily", url=None, api_key="s3cret") as tools:
        found = await tools.search(domains=["facts.example", "news.example"], exclude_domains=["x.example"])
    assert found["results"] == [
        {
            "title": "Otter | Facts",
            "url": "https://facts.example/otter",
            "snippet": "Otters sleep floating.",
            "date": "2025-11-20",
        },
        {"title": "Otters today", "url": "https://news.example/otters", "snippet": "Otters return."},
    ]
    assert [request.headers["authorization"] for request in requests] == ["REDACTED"]


class Ddgs:
    """The library ddgs as it answered; it notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.answer: Json | Exception = json.loads((RECORDED / "ddgs.json").read_text("utf-8"))

    def __call__(self, *, timeout: int) -> Ddgs:
        assert timeout == 10
        return self

    def text(self, query: str, **given: object) -> list[Json]:
        self.asked.append({"query": query, **given})
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer["results"]


@pytest.mark.requirement("I2-8-web-search-backends")
async def test_ddgs_is_asked_in_its_own_parameters_and_its_errors_have_different_results(tmp_path: Path) -> None:
    library, errors = Ddgs(), import_module("ddgs.exceptions")
    site = ProviderContext(key="web_search", state_dir=tmp_path, store=lambda _: pytest.fail("it keeps nothing"))
    backend = DdgsBackend(Settings(backend="ddgs"), site, lambda: (library, errors))
    query = Query(text="otters", allowed=("otters.example",), language="de-AT", time_range="day")
    assert await backend.search(query) == [
        Hit("https://otters.example/", "All about otters", "Otters are mammals.", None),
        Hit("https://zoo.example/otters", "Otters at the zoo", "Feeding times", None),
    ]
    assert library.asked == [
        {
            "query": "site:otters.example otters",
            "max_results": 20,
            "backend": "auto",
            "region": "at-de",
            "timelimit": "d",
        }
    ]
    library.answer = errors.DDGSException("No results found.")
    assert await backend.search(Query(text="otters")) == []
    library.answer = errors.RatelimitException("202")
    with pytest.raises(ToolError, match="too many requests"):
        await backend.search(Query(text="otters"))
    for error in (errors.DDGSException("bing: cannot connect"), errors.TimeoutException("timed out")):
        library.answer = error
        with pytest.raises(BackendUnavailable, match=r"^ddgs gives no answer$") as caught:
            await backend.search(Query(text="otters"))
        assert caught.value.detail == str(error)
    site.threads.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "the backend searxng needs a url, such as http://searxng:8080"),
        ({"url": "searxng:8080"}, "should be a URL such as http://searxng:8080"),
        ({"url": "http://u:p@searxng"}, "should have no user, no query and no fragment"),
        ({"url": "http://searxng", "api_key": "k"}, "the backend searxng takes no api_key"),
        ({"backend": "brave"}, "the backend brave needs an api_key"),
        ({"backend": "ddgs", "url": "http://a"}, "the backend ddgs takes no url"),
        ({"backend": "ddgs", "allowed_domains": ["https://a.example"]}, "should match pattern"),
    ],
)
def test_settings_that_do_not_fit_the_backend_say_what_does(settings: Json, problem: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(problem)):
        Settings.model_validate(settings)


async def endless() -> AsyncIterator[bytes]:
    for _ in range(1000):  # a server that is not read goes on by itself
        yield b" " * 65536


def slow(request: Request) -> Response:
    time.sleep(1)
    return JSONResponse({})


SILENT = {"results": [], "unresponsive_engines": [["google", "timeout"], ["bing", "access denied"]]}
FAULTS: list[tuple[Answer, str, str]] = [
    (lambda _: HTMLResponse("<html>hello</html>"), "unavailable", "SearXNG answers no JSON; check url"),
    (lambda _: JSONResponse([1]), "unavailable", "SearXNG answers without a list of results; check url"),
    (lambda _: JSONResponse({"results": {}}), "unavailable", "SearXNG answers without a list of results; check url"),
    (lambda _: Response("[" * 50_000), "unavailable", "SearXNG answers no JSON; check url"),
    (
        lambda _: JSONResponse(SILENT),
        "unavailable",
        "no engine of SearXNG answers: google: timeout; bing: access denied",
    ),
    (lambda _: HTMLResponse("no", 500), "unavailable", "SearXNG fails (HTTP 500)"),
    (lambda _: JSONResponse({"error": "no route to db.internal"}, 503), "unavailable", "SearXNG fails (HTTP 503)"),
    (
        lambda _: Response("[" + "{}," * 99_999 + "1]"),
        "unavailable",
        "SearXNG answers more than 100,000 values; check url",
    ),
    (
        lambda _: HTMLResponse("no", 403),
        "unavailable",
        f"SearXNG refuses access (HTTP 403); {SERVICES['searxng'].hint}",
    ),
    (
        lambda _: RedirectResponse("http://169.254.169.254/"),
        "unavailable",
        "SearXNG redirects",
    ),
    (
        lambda _: Response(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
        "unavailable",
        "SearXNG gives no answer: the answer is compressed though we asked for none that is",
    ),
    (
        lambda _: StreamingResponse(endless(), media_type="application/json"),
        "unavailable",
        "SearXNG gives no answer: the answer is larger than 4,194,304 bytes",
    ),
    (slow, "unavailable", "SearXNG has not answered within 0.3 s"),
    (
        lambda _: JSONResponse({"error": "bad q"}, 400),
        "tool_error",
        'SearXNG refuses the query (HTTP 400): {"error":"bad q"}',
    ),
]


@pytest.mark.requirement("I2-8-web-search-faults")
@pytest.mark.parametrize(("answer", "status", "text"), FAULTS)
async def test_a_backend_that_fails_is_an_error_that_says_how(
    serve: Serve, web: Web, answer: Answer, status: str, text: str
) -> None:
    web.search = answer
    async with serve(timeout_s=0.3 if answer is slow else 10.0) as tools:
        result = await tools.call("web_search", query="otters")
        outcome = "unavailable" if status == "unavailable" else "failed"
        assert tools.metric("web_search_requests_total", backend="searxng", outcome=outcome) == 1
    said = f'tool "web_search" is unavailable: {text}' if status == "unavailable" else text
    assert (result.status, result.output) == (status, said)


@pytest.mark.requirement("I2-8-web-search-faults")
async def test_a_backend_that_has_had_enough_is_left_alone_until_its_time(serve: Serve, web: Web) -> None:
    web.search = lambda request: JSONResponse({}, 429, {"Retry-After": "7"})
    async with serve() as tools:
        first = await tools.call("web_search", query="otters")
        second = await tools.call("web_search", query="beavers")
        assert tools.metric("web_search_requests_total", backend="searxng", outcome="limited") == 2
    assert (first.status, first.output) == ("tool_error", "SearXNG has had too many requests; try again in 7 s")
    assert (first.retry_after_s, first.metadata) == (7.0, {"code": "rate_limited"})
    assert second.retry_after_s is not None
    assert 0 < second.retry_after_s < 7
    assert len(web.requests) == 1


@pytest.mark.requirement("I2-8-web-search-faults")
@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"X-RateLimit-Reset": "1, 1419704", "X-RateLimit-Remaining": "0, 1999"}, 1.0),
    ],
)
async def test_a_limit_without_a_time_may_be_tried_again_at_once(
    serve: Serve, web: Web, headers: dict[str, str], pause: float | None
) -> None:
    web.search = lambda request: JSONResponse({}, 429, headers)
    async with serve(backend="brave", api_key="k") as tools:
        result = await tools.call("web_search", query="otters")
    assert (result.status, result.retry_after_s) == ("tool_error", pause)
    assert web.requests[0].headers["x-subscription-token"] == "k"


@pytest.mark.requirement("I2-8-web-search-addresses")
async def test_an_address_of_the_operator_is_in_the_log_and_in_no_result(
    serve: Serve, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    web.search = lambda _: RedirectResponse("http://10.1.2.3/inside")
    async with serve() as tools:
        redirected = await tools.call("web_search", query="otters")
    async with serve(url="http://searxng.inside.invalid:8080") as tools:
        unknown = await tools.call("web_search", query="otters")
    assert [result.output for result in (redirected, unknown)] == [
        'tool "web_search" is unavailable: SearXNG redirects',
        'tool "web_search" is unavailable: SearXNG cannot be reached',
    ]
    said = [record.getMessage() for record in caplog.records if record.name == "toolplug.providers.web_search"]
    assert said == [
        "SearXNG redirects: to 'http://10.1.2.3/inside'; write that as url",
        "SearXNG cannot be reached: 'searxng.inside.invalid' has no address",
    ]


async def test_titles_and_snippets_lose_what_nobody_can_see(serve: Serve, web: Web) -> None:
    hidden = "".join(map(chr, (0x3164, 0x115F, 0x1160, 0xFFA0, 0x034F, 0x17B4, 0x180F, 0xE0041, 0x202E, 0xFE01)))
    row = {
        "url": f"https://a.example/{hidden}",
        "title": f"A{hidden} b",
        "content": f"c\r\n{hidden}d  \U0001f469\u200d\U0001f4bb",
    }
    web.search = lambda _: JSONResponse({"results": [row]})
    async with serve() as tools:
        (found,) = (await tools.search())["results"]
    assert found == {"title": "A b", "url": "https://a.example/", "snippet": "c d \U0001f469\u200d\U0001f4bb"}
