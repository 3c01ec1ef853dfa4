"""Search services: how each is asked, how its answers are read, and what its refusals mean."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol, cast
from urllib.parse import urlencode

import httpx2
import orjson

from toolplug import ToolError, ToolUnavailable
from toolplug_web_search.settings import MAX_RESULTS, Settings, UserLocation

CONNECT_S = 5.0
SMALL_BYTES = 64 * 1024
"""Answers up to this size are parsed on the event loop, larger ones in a thread."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_SITES = 10
"""Domains that are told to a backend by operators of its query; of more, the results are filtered alone."""
MAX_PAUSE_S = 3600.0

TimeRange = Literal["day", "week", "month", "year"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for; the backend may ignore everything but the text, so that results are filtered again."""

    text: str
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    language: str | None = None
    location: UserLocation | None = None
    time_range: TimeRange | None = None

    @property
    def country(self) -> str | None:
        """The user's country, else that of the language, in upper case."""
        given = (self.location and self.location.country) or (self.language or "")[3:]
        return given.upper() or None

    def with_sites(self, text: str) -> str:
        """Return the text after `site:` operators for the domains, so that an open quote of it cannot swallow them."""
        sites = [f"site:{name}" for name in self.allowed] if len(self.allowed) <= MAX_SITES else []
        chosen = f"({' OR '.join(sites)})" if len(sites) > 1 else "".join(sites)
        without = [f"-site:{name}" for name in self.blocked[:MAX_SITES]]
        return " ".join(part for part in (chosen, *without, text) if part)


class Hit(NamedTuple):
    """One result as a backend gives it; `date` is a day such as 2026-11-24."""

    url: str
    title: str
    snippet: str
    date: str | None


class Backend(Protocol):
    """A search service; `name` is the label of its metrics."""

    name: str

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what it finds, best first. Raises `ToolError` and `ToolUnavailable`."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A search service with an HTTP API. `hint` says what to do where it refuses access."""

    title: str
    url: str
    request: Callable[[str, Settings, Query], httpx2.Request]
    rows: Callable[[Mapping[str, object]], object]
    hit: Callable[[Mapping[str, object]], Hit]
    hint: str
    max_query: int = 2_000


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
    return Hit(_text(row, "url"), _text(row, "title"), _text(row, "content"), _day(row.get("publishedDate")))


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
    snippet = " … ".join([_text(row, "description"), *more])
    return Hit(_text(row, "url"), html.unescape(_text(row, "title")), html.unescape(snippet), _day(row.get("page_age")))


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
    return Hit(_text(row, "url"), _text(row, "title"), _text(row, "content"), _day(row.get("published_date")))


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


class HttpBackend:
    """A service that is reached over HTTP. After a 429 it is not asked again before the time that it gave."""

    def __init__(
        self, name: str, settings: Settings, transport: httpx2.AsyncBaseTransport, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self._service = SERVICES[name]
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._closed_until = 0.0

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what it finds, best first. Raises `ToolError` and `ToolUnavailable`."""
        service, settings = self._service, self._settings
        left_s = self._closed_until - self._clock()
        if left_s > 0:
            raise _busy(service, left_s)
        if len(query.text) > service.max_query:
            raise ToolError(f"{service.title} takes queries of at most {service.max_query} characters; shorten it")
        request = service.request(settings.url or service.url, settings, query)
        response = await self._answer(request)
        if not response.is_success:
            raise self._refusal(response)
        content = response.content
        if len(content) <= SMALL_BYTES:
            return self._hits(content)
        return await asyncio.to_thread(self._hits, content)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        service, within_s = self._service, self._settings.timeout_s
        request.headers["Accept"] = "application/json"
        request.headers["User-Agent"] = "toolplug-web-search"
        request.extensions = {"timeout": httpx2.Timeout(None, connect=CONNECT_S).as_dict()}
        try:
            async with asyncio.timeout(within_s):
                response = await self._transport.handle_async_request(request)
                await response.aread()
        except TimeoutError:
            reason = f"{service.title} has not answered within {within_s:g} s"
            raise ToolUnavailable(reason, code="backend_timeout") from None
        except httpx2.TransportError as error:
            raise ToolUnavailable(f"{service.title} gives no answer: {error}", code="backend_down") from error
        return response

    def _hits(self, content: bytes) -> list[Hit]:
        service = self._service
        try:
            answer: object = orjson.loads(content)
        except orjson.JSONDecodeError:
            raise ToolUnavailable(f"{service.title} answers no JSON; check url", code="no_json") from None
        rows = service.rows(cast("Mapping[str, object]", answer)) if isinstance(answer, dict) else None
        if not isinstance(rows, list):
            raise ToolUnavailable(f"{service.title} answers without a list of results; check url", code="no_results")
        found = cast("list[object]", rows)
        hits = [service.hit(cast("Mapping[str, object]", row)) for row in found if isinstance(row, dict)]
        return [hit for hit in hits if hit.url.startswith(("http://", "https://"))]

    def _refusal(self, response: httpx2.Response) -> Exception:
        service, status = self._service, response.status_code
        wait_s = retry_after_s(response.headers)
        if status == 429:
            if wait_s is not None:
                self._closed_until = self._clock() + min(wait_s, MAX_PAUSE_S)
            return _busy(service, wait_s)
        if response.is_redirect:
            target = response.headers.get("location", "")[:200]
            return ToolUnavailable(f"{service.title} redirects to {target!r}; write that as url", code="redirected")
        if status in (401, 403):
            reason = f"{service.title} refuses access (HTTP {status}); {service.hint}"
            return ToolUnavailable(reason, code="backend_refused")
        if status in (400, 422):
            return ToolError(f"{service.title} refuses the query (HTTP {status}){_said(response)}")
        reason = f"{service.title} fails (HTTP {status}){_said(response)}"
        return ToolUnavailable(reason, code="backend_failed", retry_after_s=wait_s)


def _ddgs() -> tuple[Any, Any]:
    """Return the class of ddgs and the module of its errors; it is an extra, and slow to import."""
    return import_module("ddgs").DDGS, import_module("ddgs.exceptions")


class DdgsBackend:
    """The library ddgs, which asks several public search engines and needs no key. It has its own connections."""

    name = "ddgs"

    def __init__(self, settings: Settings, library: Callable[[], tuple[Any, Any]] = _ddgs) -> None:
        self._timeout_s = settings.timeout_s
        self._library = library

    async def search(self, query: Query) -> Sequence[Hit]:
        """Return what it finds. Raises `ToolError` and `ToolUnavailable`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(self._search, query)
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
            raise ToolUnavailable(f"ddgs gives no answer: {error}", code="backend_timeout") from None
        except errors.DDGSException as error:
            if str(error).startswith("No results"):
                return []
            raise ToolUnavailable(f"ddgs gives no answer: {str(error)[:300]}", code="backend_down") from error
        return [Hit(_text(row, "href"), _text(row, "title"), _text(row, "body"), None) for row in rows]


def retry_after_s(headers: httpx2.Headers) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, section 10.2.3), else those of `X-RateLimit-Reset`."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    if not text:
        # one number for each window, such as a second and a month; wait for those that are used up
        resets = re.findall("[0-9]{1,9}", headers.get("x-ratelimit-reset", ""))
        left = re.findall("[0-9]{1,9}", headers.get("x-ratelimit-remaining", ""))
        used_up = [float(reset) for reset, rest in zip(resets, left, strict=False) if rest.strip("0") == ""]
        return max(used_up, default=None)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, round((until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 1))


def _busy(service: Service, wait_s: float | None) -> ToolError:
    when = "later" if wait_s is None else f"in {wait_s:.3g} s"
    text = f"{service.title} has had too many requests; try again {when}"
    return ToolError(text, retry_after_s=wait_s, metadata={"code": "rate_limited"})


def _said(response: httpx2.Response) -> str:
    """Return the beginning of an error in JSON, which says why; a page of HTML says nothing to a model."""
    is_json = "json" in response.headers.get("content-type", "")
    return f": {response.text.strip()[:300]}" if is_json and response.text.strip() else ""


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


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
