"""A real searx, whose engine is an index of these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import JSONResponse

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.needs("searx-run")]

Serve = Callable[..., Any]

HITS = {
    "hits": [
        {"url": "https://otters.example/", "title": "All about otters", "text": "Otters are mammals."},
        {"url": "https://otters.example/?utm_source=x", "title": "A copy", "text": "Otters."},
        {"url": "https://rivers.example/elbe", "title": "The Elbe", "text": "Otters live there."},
    ]
}


@pytest.mark.requirement("I2-8-web-search-searx")
async def test_searx_finds_what_its_index_has(serve: Serve, web: Any, searx: str) -> None:
    web.pages["index"] = lambda _: JSONResponse(HITS)
    async with serve(url=searx) as tools:
        assert (await tools.search(language="de-AT"))["results"] == [
            {"title": "All about otters", "url": "https://otters.example/", "snippet": "Otters are mammals."},
            {"title": "The Elbe", "url": "https://rivers.example/elbe", "snippet": "Otters live there."},
        ]
        assert await tools.urls("bees", domains=["rivers.example"]) == ["https://rivers.example/elbe"]
    assert [request.query_params["q"] for request in web.requests] == ["otters", "site:rivers.example bees"]


@pytest.mark.requirement("I2-8-web-search-searx")
@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ('"sea otter" -zoo a&b=c', '"sea otter" -zoo a&b=c'),
        ("!other otters", '"!other" otters'),
        ("!!g otters :de ?ix <1", '"!!g" otters ":de" "?ix" "<1"'),
        ("what is C!? {query} %s \u00f6", "what is C!? {query} %s \u00f6"),
        ('"open otters', '"open otters'),
    ],
)
async def test_what_a_model_asks_for_is_asked_of_the_index_and_steers_nothing(
    serve: Serve, web: Any, searx: str, query: str, asked: str
) -> None:
    web.pages["index"] = lambda _: JSONResponse(HITS)
    async with serve(url=searx) as tools:
        assert len(await tools.urls(query)) == 2
    assert [(request.url.path, request.query_params["q"]) for request in web.requests] == [("/index", asked)]


@pytest.mark.requirement("I2-8-web-search-searx")
async def test_an_index_that_does_not_answer_searx_is_named(serve: Serve, web: Any, searx: str) -> None:
    web.pages["index"] = lambda _: JSONResponse({}, 500)
    async with serve(url=searx) as tools:
        result = await tools.call("web_search", query="otters")
    assert result.status == "unavailable"
    assert result.output.startswith('tool "web_search" is unavailable: no engine of SearXNG answers: index: ')
