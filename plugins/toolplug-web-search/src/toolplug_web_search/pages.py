"""Pages: fetched from permitted addresses only, each redirect checked, and read in a process of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import httpx2

from toolplug import ToolError
from toolplug_web_search.backends import CONNECT_S, retry_after_s
from toolplug_web_search.extraction import PageText

MAX_REDIRECTS = 5
MAX_READERS = 2
"""Pages that are read at a time; each is a process."""
READ_S = 20.0
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


class PageReader:
    """Opens pages. `transport` checks addresses, refuses compressed answers and bounds their size."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, *, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._reading = asyncio.Semaphore(MAX_READERS)

    async def open(self, url: str, permits: Permits) -> Page:
        """Fetch a page and return its text. Raises `ToolError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                response, final = await self._fetched(url, permits)
        except TimeoutError:
            raise ToolError(f"the page has not been sent within {self._timeout_s:g} s") from None
        except httpx2.TransportError as error:
            raise ToolError(f"the page cannot be fetched: {error}") from error
        async with self._reading:
            content = await _read(response)
        return Page(str(final), content)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _fetched(self, url: str, permits: Permits) -> tuple[httpx2.Response, httpx2.URL]:
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


async def _read(response: httpx2.Response) -> PageText:
    """Return the text of an answer. Raises `ToolError`."""
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    head = {"media_type": media_type[:100], "charset": (response.charset_encoding or "").lower()[:50]}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "toolplug_web_search.extraction"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(READ_S):
            written, _ = await process.communicate(json.dumps(head).encode() + b"\n" + response.content)
    except TimeoutError:
        raise ToolError(f"the text of the page could not be read within {READ_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ToolError("the text of the page could not be read: it takes too much time or memory")
    answer: Mapping[str, Any] = json.loads(written)
    if "unreadable" in answer:
        raise ToolError(str(answer["unreadable"]))
    return PageText(**cast("dict[str, Any]", answer))
