"""SearXNG, Brave, Tavily and ddgs: the request of a search, and the results in an answer."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, cast
from urllib.parse import urlencode

import httpx2

from toolplug import ProviderContext, ToolError, ToolUnavailable
from toolplug_web_search.backends import BackendUnavailable, Hit, Query, Service, text_of
from toolplug_web_search.settings import MAX_RESULTS, Settings


def _searxng_request(url: str, settings: Settings, query: Query) -> httpx2.Request:
    # a word that begins so would choose another engine, another language or a time limit, or redirect to another site
    text = re.sub(r"(?<!\S)[!?:<]\S*", lambda found: f'"{found[0].replace(chr(34), "")}"', query.text)
    language = query.language or "all"
    if len(language) == 2 and query.country:
        language = f"{language}-{query.country}"
    given = {"q": query.with_sites(text), "format": "json", "language": language}
    if query.time_range is not None:
        given["time_range"] = query.time_range
    return httpx2.Request("GET", f"{url}/search?{urlencode(given)}")


def _searxng_rows(answer: Mapping[str, object]) -> object:
    rows, silent = answer.get("results"), answer.get("unresponsive_engines")
    if rows == [] and isinstance(silent, list) and silent:
        engines = cast("list[object]", silent)
        shown = [": ".join(map(str, cast("list[object]", each))) for each in engines if isinstance(each, list)]
        raise ToolUnavailable(f"no engine of SearXNG answers: {'; '.join(shown)[:300]}", code="engines_down")
    return rows


def _searxng_hit(row: Mapping[str, object]) -> Hit:
    return Hit(text_of(row, "url"), text_of(row, "title"), text_of(row, "content"), _day(row.get("publishedDate")))


def _brave_request(url: str, settings: Settings, query: Query) -> httpx2.Request:
    given = {"q": query.with_sites(query.text), "count": str(MAX_RESULTS), "text_decorations": "false"}
    if query.language is not None:
        given["search_lang"] = query.language[:2]
    if query.country is not None:
        given["country"] = query.country
    if query.time_range is not None:
        given["freshness"] = f"p{query.time_range[0]}"
    headers = {"X-Subscription-Token": _key(settings)}
    if query.location is not None:
        place = query.location
        named = {"city": place.city, "state-name": place.region, "country": place.country, "timezone": place.timezone}
        # headers are ASCII; what is not is left out, and the service falls back to the rest
        headers |= {f"X-Loc-{name.title()}": text for name, text in named.items() if text and text.isascii()}
    return httpx2.Request("GET", f"{url}/res/v1/web/search?{urlencode(given)}", headers=headers)


def _brave_hit(row: Mapping[str, object]) -> Hit:
    extra = row.get("extra_snippets")
    more = [text for text in cast("list[object]", extra) if isinstance(text, str)] if isinstance(extra, list) else []
    snippet = " … ".join([text_of(row, "description"), *more])
    return Hit(
        text_of(row, "url"), html.unescape(text_of(row, "title")), html.unescape(snippet), _day(row.get("page_age"))
    )


def _tavily_request(url: str, settings: Settings, query: Query) -> httpx2.Request:
    body: dict[str, object] = {"query": query.text, "max_results": MAX_RESULTS, "search_depth": "basic"}
    if query.allowed:
        body["include_domains"] = list(query.allowed)
    if query.blocked:
        body["exclude_domains"] = list(query.blocked)
    if query.time_range is not None:
        body["time_range"] = query.time_range
    return httpx2.Request("POST", f"{url}/search", json=body, headers={"Authorization": f"Bearer {_key(settings)}"})


def _tavily_hit(row: Mapping[str, object]) -> Hit:
    return Hit(text_of(row, "url"), text_of(row, "title"), text_of(row, "content"), _day(row.get("published_date")))


SERVICES: Mapping[str, Service] = {
    "searxng": Service(
        title="SearXNG",
        url="",
        request=_searxng_request,
        rows=_searxng_rows,
        hit=_searxng_hit,
        hint="add json to search.formats in its settings.yml, and let its limiter pass this host",
    ),
    "brave": Service(
        title="Brave Search",
        url="https://api.search.brave.com",
        request=_brave_request,
        rows=lambda answer: cast("Mapping[str, object]", answer.get("web") or {"results": []}).get("results"),
        hit=_brave_hit,
        hint="check api_key",
        max_query=400,
    ),
    "tavily": Service(
        title="Tavily",
        url="https://api.tavily.com",
        request=_tavily_request,
        rows=lambda answer: answer.get("results"),
        hit=_tavily_hit,
        hint="check api_key",
        max_query=400,
    ),
}


def _key(settings: Settings) -> str:
    return settings.api_key.get_secret_value() if settings.api_key is not None else ""


def _day(value: object) -> str | None:
    """Return the day of a date in ISO 8601 or RFC 2822."""
    if not isinstance(value, str):
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return read(value).date().isoformat()
        except ValueError:
            continue
    return None


def _ddgs() -> tuple[Any, Any]:
    """Return the class of ddgs and the module of its errors; it is an extra, and slow to import."""
    return import_module("ddgs").DDGS, import_module("ddgs.exceptions")


class DdgsBackend:
    """The library ddgs, which asks several public search engines and needs no key. It has its own connections."""

    name = "ddgs"

    def __init__(
        self, settings: Settings, site: ProviderContext, library: Callable[[], tuple[Any, Any]] = _ddgs
    ) -> None:
        self._timeout_s = settings.timeout_s
        self._site = site
        self._library = library

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what it finds. Raises `ToolError` and `ToolUnavailable`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._site.in_thread(self._search, query)
        except TimeoutError:
            reason = f"ddgs has not answered within {self._timeout_s:g} s"
            raise ToolUnavailable(reason, code="backend_timeout") from None

    async def aclose(self) -> None:
        """Do nothing: a search closes its own connections."""

    def _search(self, query: Query) -> list[Hit]:
        engines, errors = self._library()
        given: dict[str, object] = {"max_results": MAX_RESULTS, "backend": "auto"}
        if query.language and query.country:
            given["region"] = f"{query.country.lower()}-{query.language[:2]}"
        if query.time_range is not None:
            given["timelimit"] = query.time_range[0]
        try:
            rows = engines(timeout=max(1, int(self._timeout_s))).text(query.with_sites(query.text), **given)
        except errors.RatelimitException:
            raise ToolError("the search engines have had too many requests; try again later") from None
        except errors.TimeoutException as error:
            raise BackendUnavailable("ddgs gives no answer", str(error)[:300], code="backend_timeout") from None
        except errors.DDGSException as error:
            if str(error).startswith("No results"):
                return []
            raise BackendUnavailable("ddgs gives no answer", str(error)[:300], code="backend_down") from None
        return [Hit(text_of(row, "href"), text_of(row, "title"), text_of(row, "body"), None) for row in rows]
