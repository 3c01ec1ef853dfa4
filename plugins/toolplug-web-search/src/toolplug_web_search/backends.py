"""Backends: what is asked, what is found, and services with an HTTP API: their answers, failures and limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple, Protocol, cast

import httpx2
import orjson

from toolplug import ProviderContext, ToolError, ToolUnavailable
from toolplug_web_search.settings import Settings, UserLocation

CONNECT_S = 5.0
SMALL_BYTES = 64 * 1024
"""Answers up to this size are parsed on the event loop, larger ones in a thread."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
MAX_VALUES = 100_000
"""Values of an answer; they are counted before they are built: 4 MiB of `{}` would take 100 MB."""
MAX_SITES = 10
"""Domains that are sent to a backend as operators of its query; of more, only the results are filtered."""
MAX_PAUSE_S = 3600.0
_CONNECT = httpx2.Timeout(None, connect=CONNECT_S).as_dict()

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


class BackendUnavailable(ToolUnavailable):
    """A backend that does not answer. `detail` is for the operator: it may name hosts, which callers do not see."""

    def __init__(self, reason: str, detail: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason, code=code, retry_after_s=retry_after_s)
        self.detail = detail


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


class HttpBackend:
    """A service that is reached over HTTP. After a 429 it is not asked again before the time that it gave."""

    def __init__(
        self,
        name: str,
        service: Service,
        settings: Settings,
        transport: httpx2.AsyncBaseTransport,
        clock: Callable[[], float],
        site: ProviderContext,
    ) -> None:
        self.name = name
        self._site = site
        self._service = service
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
        return await self._site.in_thread(self._hits, content)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        service, within_s = self._service, self._settings.timeout_s
        request.headers["Accept"] = "application/json"
        request.headers["User-Agent"] = "toolplug-web-search"
        request.extensions = {"timeout": _CONNECT}
        try:
            async with asyncio.timeout(within_s):
                response = await self._transport.handle_async_request(request)
                await response.aread()
        except TimeoutError:
            reason = f"{service.title} has not answered within {within_s:g} s"
            raise ToolUnavailable(reason, code="backend_timeout") from None
        except httpx2.NetworkError as error:
            raise BackendUnavailable(f"{service.title} cannot be reached", str(error), code="backend_down") from None
        except httpx2.TransportError as error:
            raise ToolUnavailable(f"{service.title} gives no answer: {error}", code="backend_down") from error
        return response

    def _hits(self, content: bytes) -> list[Hit]:
        service = self._service
        if content.count(b",") + content.count(b"{") + content.count(b"[") > MAX_VALUES:
            reason = f"{service.title} answers more than {MAX_VALUES:,} values; check url"
            raise ToolUnavailable(reason, code="too_many_values")
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
            target = f"to {response.headers.get('location', '')[:200]!r}; write that as url"
            return BackendUnavailable(f"{service.title} redirects", target, code="redirected")
        if status in (401, 403):
            reason = f"{service.title} refuses access (HTTP {status}); {service.hint}"
            return ToolUnavailable(reason, code="backend_refused")
        if status in (400, 422):
            return ToolError(f"{service.title} refuses the query (HTTP {status}){_reason_in(response)}")
        reason, said = f"{service.title} fails (HTTP {status})", _reason_in(response).removeprefix(": ")
        return BackendUnavailable(reason, said, code="backend_failed", retry_after_s=wait_s)


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


def _reason_in(response: httpx2.Response) -> str:
    """Return the beginning of an error in JSON, which says why; a page of HTML says nothing to a model."""
    is_json = "json" in response.headers.get("content-type", "")
    return f": {response.text.strip()[:300]}" if is_json and response.text.strip() else ""


def text_of(row: Mapping[str, object], name: str) -> str:
    """Return a field of a result if it is a text, else an empty one."""
    value = row.get(name)
    return value if isinstance(value, str) else ""
