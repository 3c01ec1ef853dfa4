"""Pages: fetched from permitted addresses only, each redirect checked, and read in a process of their own."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast
from weakref import WeakValueDictionary

import httpx2

from toolplug import ToolError
from toolplug.apart import ApartCallFailed, call
from toolplug_web_search.backends import CONNECT_S, retry_after_s
from toolplug_web_search.extraction import PageText, read_page

MAX_REDIRECTS = 5
MAX_READERS = 4
"""Pages that are read at a time, each in a process; half of them are the most that one tenant has."""
READ_S = 20.0
"""Seconds of CPU time for the text of one page."""
MAX_MEMORY_BYTES = 1024 * 1024 * 1024
MAX_URL = 2_000

_REASONS = {
    401: "it needs a login",
    403: "it refuses access",
    404: "it does not exist",
    410: "it no longer exists",
    451: "it is withheld for legal reasons",
}

Permits = Callable[[str], bool]
"""Returns whether pages of a host may be opened."""


class Page(NamedTuple):
    """A page that was opened; `url` is where its redirects led."""

    url: str
    content: PageText


class ReaderFailed(Exception):
    """The process that reads pages cannot be started, or ends without an answer; the log has its words."""


class PageReader:
    """Opens pages. `transport` checks addresses, expands nothing and bounds the size of answers."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, log: logging.Logger, *, timeout_s: float) -> None:
        self._transport = transport
        self._log = log
        self._timeout_s = timeout_s
        self._reading = asyncio.Semaphore(MAX_READERS)
        self._of_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def open(self, url: str, permits: Permits, tenant: str) -> Page:
        """Fetch a page and return its text; the tenants wait for a reader in turn. Raises `ToolError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                response, final = await self._fetch(url, permits)
        except TimeoutError:
            raise ToolError(f"the page has not been sent within {self._timeout_s:g} s") from None
        except httpx2.TransportError as error:
            raise ToolError(f"the page cannot be fetched: {error}") from error
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            async with self._place(tenant):
                content = await self._read(response.content, media_type, response.charset_encoding or "")
        except ReaderFailed as error:
            raise ToolError(f"the text of the page could not be read: {error}") from None
        return Page(str(final), content)

    async def check(self) -> None:
        """Read a page of our own. Raises `ReaderFailed` where the reader does not work."""
        content = await self._read(b"<!doctype html><html><body><p>words</p></body></html>", "text/html", "")
        if "words" not in content.text:
            raise ReaderFailed("it does not find the text of a page of HTML")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncGenerator[None]:
        """Wait for a reader, and hold it inside the block."""
        own = self._of_tenant.setdefault(tenant, asyncio.Semaphore(MAX_READERS // 2))
        async with own, self._reading:
            yield

    async def _fetch(self, url: str, permits: Permits) -> tuple[httpx2.Response, httpx2.URL]:
        target = page_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            if not permits(target.host):
                raise ToolError(f"pages of {target.host} may not be opened: it is not in the allowed domains")
            headers = {
                "Accept": "text/html, application/xhtml+xml, application/pdf, text/*;q=0.9, */*;q=0.5",
                "User-Agent": "Mozilla/5.0 (compatible; toolplug-web-search)",
            }
            extensions = {"timeout": httpx2.Timeout(None, connect=CONNECT_S).as_dict()}
            request = httpx2.Request("GET", target, headers=headers, extensions=extensions)
            response = await self._transport.handle_async_request(request)
            await response.aread()
            if not response.has_redirect_location:
                if not response.is_success:
                    raise _refusal(response)
                return response, target
            target = page_url(str(target.join(response.headers["location"])))
        raise ToolError(f"the page redirects more than {MAX_REDIRECTS} times")

    async def _read(self, data: bytes, media_type: str, charset: str) -> PageText:
        """Return the text of a page. Raises `ToolError` for one that has none, and `ReaderFailed`."""
        head = json.dumps({"media_type": media_type[:100], "charset": charset[:50]})
        try:
            written = await call(read_page, head.encode() + b"\n" + data, READ_S, MAX_MEMORY_BYTES)
        except ApartCallFailed as error:
            if error.reason == "time":
                raise ToolError(f"the text of the page could not be read within {READ_S:g} s") from None
            self._log.error("the process that reads pages failed: %s: %s", error, error.said or "it said nothing")
            raise ReaderFailed(explain(error)) from None
        answer: Mapping[str, Any] = json.loads(written)
        if "unreadable" in answer:
            raise ToolError(str(answer["unreadable"]))
        return PageText(**cast("dict[str, Any]", answer))


def explain(error: ApartCallFailed) -> str:
    """Return in words for a caller why a page was not read."""
    if error.reason == "memory" or "MemoryError" in error.said:
        return f"it takes more than {MAX_MEMORY_BYTES >> 20:,} MiB of memory"
    if error.reason == "import" or "ImportError" in error.said or "ModuleNotFoundError" in error.said:
        return "the reader of pages is not installed whole; its operator finds the reason in the log"
    if error.reason == "start" and error.status is None:
        return "the process that reads pages cannot be started"
    if error.status == -signal.SIGKILL:
        return "its reader was killed, as by a system that is short of memory"
    if error.status is not None and error.status < 0:
        return f"its reader crashed ({signal.Signals(-error.status).name})"
    return "the reader of pages failed; its operator finds the reason in the log"


def page_url(text: str) -> httpx2.URL:
    """Return the URL without its fragment. Raises `ToolError` unless it is http or https, without a user."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if len(text) > MAX_URL or url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise ToolError(f"{text[:200]!r} is no URL of a page, such as https://example.org/")
    if url.userinfo:
        raise ToolError("the URL must not have a user or a password")
    return url.copy_with(fragment=None)


def _refusal(response: httpx2.Response) -> ToolError:
    status = response.status_code
    wait_s = retry_after_s(response.headers) if status in (429, 503) else None
    reason = _REASONS.get(status, "its server has had too many requests" if status == 429 else "its server refuses it")
    text = f"the page cannot be opened: {reason} (HTTP {status})"
    if wait_s is not None:
        text += f"; try again in {wait_s:g} s"
    return ToolError(text, retry_after_s=wait_s, metadata={"http_status": status})
