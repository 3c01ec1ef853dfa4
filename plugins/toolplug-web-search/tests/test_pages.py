"""Pages: their text, in parts, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pypdf import PdfWriter
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from toolplug.apart import ApartCallFailed
from toolplug_web_search.pages import MAX_READERS, PageReader, explain

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Serve = Callable[..., Any]
Web = Any
Answer = Callable[[Request], Response]

PARAGRAPH = "Otters swim in rivers and hold hands while they sleep, so that they do not drift apart. "
ARTICLE = (
    "<html><head><title>Otters</title><meta name='date' content='2026-01-02'></head><body><nav>Home</nav>"
    f"<article><h1>Otters</h1><p>{PARAGRAPH * 3}</p><script>alert(1)</script><p>{PARAGRAPH}</p></article></body></html>"
)


def pdf(text: str = "Otters on paper", *, password: str = "") -> bytes:
    """A PDF of one page, written by hand as pypdf cannot write text."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    whole = b"%PDF-1.4\n"
    table = b"xref\n0 6\n0000000000 65535 f \n"
    for number, part in enumerate(parts, 1):
        table += b"%010d 00000 n \n" % len(whole)
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    whole += b"%strailer\n<</Root 1 0 R/Size 6>>\nstartxref\n%d\n%%%%EOF\n" % (table, len(whole))
    if not password:
        return whole
    writer = PdfWriter(clone_from=io.BytesIO(whole))
    writer.encrypt(password, algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


@pytest.mark.requirement("I2-8-web-search-pages")
async def test_the_text_of_a_page_comes_with_title_and_date_without_what_surrounds_it(serve: Serve, web: Web) -> None:
    web.pages["otters"] = lambda _: HTMLResponse(ARTICLE)
    async with serve() as tools:
        result = await tools.call("open_page", url=f"{web.url}/otters#top")
        assert tools.metric("web_search_pages_total", outcome="read") == 1
    page = result.structured
    assert (page["title"], page["date"], page["url"]) == ("Otters", "2026-01-02", f"{web.url}/otters")
    assert page["text"].startswith("# Otters\n\nOtters swim")
    assert "Home" not in page["text"]
    assert "alert" not in page["text"]
    assert page["characters"] == [0, len(page["text"]), len(page["text"])]
    assert result.metadata == {
        "action": {"type": "open_page", "url": f"{web.url}/otters"},
        "citations": [{"url": f"{web.url}/otters", "title": "Otters"}],
    }


@pytest.mark.requirement("I2-8-web-search-pages")
@pytest.mark.parametrize("start", ["", "\ufeff", "<!DOCTYPE html>"])
async def test_a_page_may_leave_the_tag_html_out(serve: Serve, web: Web, start: str) -> None:
    page = f"{start}<title>Otters</title><nav>Home</nav><article><h1>Otters</h1><p>{PARAGRAPH * 4}</p></article>"
    web.pages["otters"] = lambda _: HTMLResponse(page)
    async with serve() as tools:
        read = (await tools.call("open_page", url=f"{web.url}/otters")).structured
    assert (read["title"], read["text"].startswith("# Otters\n\nOtters swim")) == ("Otters", True)


@pytest.mark.requirement("I2-8-web-search-pages")
async def test_a_long_page_comes_in_parts_and_is_fetched_once(serve: Serve, web: Web) -> None:
    text = "".join(f"line {number}\n" for number in range(2_000))
    web.pages["long.txt"] = lambda _: PlainTextResponse(text)
    url, read, start = f"{web.url}/long.txt", "", 0
    offline = {"external_web_access": False}
    async with serve() as tools:
        assert await tools.refused(url, options=offline) == "external_web_access is false, and this page is not cached"
        first = await tools.page(url)
        assert "age_s" not in first
        while start is not None:
            part = await tools.page(url, start=start, options={**offline, "search_context_size": "low"})
            read, start = read + part["text"], part.get("next_start")
            assert part["age_s"] == 0
        assert await tools.refused(url, tenant="other", options=offline)
    assert first["text"] == text[:12_000]
    assert read == text
    assert len(web.requests) == 1


@pytest.mark.requirement("I2-8-web-search-pages")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: Response(pdf(), media_type="application/pdf"), "[page 1]\nOtters on paper"),
        (lambda _: HTMLResponse(pdf()), "[page 1]\nOtters on paper"),
        (lambda _: PlainTextResponse("<!doctype html><p>Short.</p>"), "Short."),
        (lambda _: Response("Öl".encode("latin-1"), media_type="text/plain; charset=latin-1"), "Öl"),
        (lambda _: Response("Öl".encode(), media_type="text/plain; charset=nonsense"), "Öl"),
        (lambda _: Response(b"a,b\r\n1,\xff", media_type="text/csv"), "a,b\n1,\ufffd"),
        (lambda _: Response('{"a": "\u202eb"}', media_type="application/json"), '{"a": "b"}'),
    ],
)
async def test_the_content_decides_what_a_page_is(serve: Serve, web: Web, answer: Answer, text: str) -> None:
    web.pages["page"] = answer
    async with serve() as tools:
        assert (await tools.page(f"{web.url}/page"))["text"] == text


async def much() -> Any:
    for _ in range(1000):
        yield b"<p>much" * 1000


@pytest.mark.requirement("I2-8-web-search-pages")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: Response(b""), "the page is empty"),
        (lambda _: HTMLResponse("<html><body><script>x()</script></body></html>"), "the page has no text; it may be "),
        (lambda _: Response(b"\x89PNG\0\0\0", media_type="text/html"), "this is no text but text/html"),
        (lambda _: Response(pdf(password="x"), media_type="application/pdf"), "the PDF is encrypted, and needs a pass"),
        (lambda _: Response(b"%PDF-1.4\nnonsense", media_type="application/pdf"), "the PDF is damaged (Pdf"),
        (lambda _: Response(pdf(""), media_type="application/pdf"), "the PDF has no text; its pages may be images"),
        (lambda _: Response(b"\x1f\x8bnonsense"), "the page is compressed with gzip, and damaged"),
        (
            lambda _: Response(gzip.compress(bytes(70_000_000))),
            "the page is compressed, and has more than 67,108,864 b",
        ),
        (lambda _: StreamingResponse(much()), "the page cannot be fetched: the answer is larger than 1,000,000 bytes"),
        (lambda _: Response("no", 404), "the page cannot be opened: it does not exist (HTTP 404)"),
        (
            lambda _: Response("no", 429, {"Retry-After": "9"}),
            "the page cannot be opened: its server has had too many ",
        ),
        (lambda r: RedirectResponse(str(r.url)), "the page redirects more than 5 times"),
        (lambda _: RedirectResponse("file:///etc/passwd"), "'file:/etc/passwd' is no URL of a page, such as https://"),
        (lambda _: RedirectResponse("http://u:p@a.example/"), "the URL must not have a user or a password"),
        (
            lambda _: RedirectResponse("http://10.0.0.1/"),
            "the page cannot be fetched: '10.0.0.1' has an address which ",
        ),
        (
            lambda _: RedirectResponse("http://[::ffff:169.254.169.254]/"),
            "the page cannot be fetched: '::ffff:169.254.",
        ),
    ],
)
async def test_a_page_that_cannot_be_read_is_an_error_that_says_why(
    serve: Serve, web: Web, answer: Answer, reason: str
) -> None:
    web.pages["page"] = answer
    async with serve(max_page_bytes=1_000_000) as tools:
        assert (await tools.refused(f"{web.url}/page")).startswith(reason)
        assert tools.metric("web_search_pages_total", outcome="failed") == 1


@pytest.mark.requirement("I2-8-web-search-pages")
async def test_private_addresses_and_other_domains_are_not_opened(serve: Serve, web: Web) -> None:
    web.pages["there"] = lambda _: HTMLResponse(ARTICLE)
    web.pages["away"] = lambda _: RedirectResponse(f"{web.url.replace('127.0.0.1', 'localhost')}/there")
    allowed = {"filters": {"allowed_domains": ["127.0.0.1"]}}
    async with serve(allow=()) as tools:
        assert "has an address which is not public" in await tools.refused(f"{web.url}/there")
    async with serve() as tools:
        assert (await tools.page(f"{web.url}/away"))["title"] == "Otters"
        reason = "pages of localhost may not be opened: it is not in the allowed domains"
        assert await tools.refused(f"{web.url}/away", options=allowed) == reason
        assert (
            await tools.refused("ftp://a.example/")
            == "'ftp://a.example/' is no URL of a page, such as https://example.org/"
        )


LOG = "".join(f"2026-11-27 07:{second:02d} line {second}\n" for second in range(60))


def pages_pdf(texts: list[bytes], *, table: bool = True) -> bytes:
    """A PDF of several pages with these content streams, each unchanged; without a table, as one that was cut."""
    kids = " ".join(f"{3 + 2 * at} 0 R" for at in range(len(texts)))
    parts = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(texts)}>>".encode()]
    for at, stream in enumerate(texts):
        font = "<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
        page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents {4 + 2 * at} 0 R/Resources{font}>>"
        parts += [page.encode(), b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream)]
    whole, places = b"%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    if not table:
        return whole + b"trailer\n<</Root 1 0 R/Size %d>>\n" % (len(parts) + 1)
    lines = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(parts) + 1, lines)
    return whole + head + b"trailer\n<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, len(whole))


def shown(word: str) -> bytes:
    return f"BT /F1 12 Tf 20 100 Td ({word}) Tj ET".encode()


BAD_PAGE = pages_pdf([shown("first"), b"BT /F1 12 Tf (broken", shown("third")]).replace(
    b"/Contents 6 0 R", b"/Contents [99 0 R 6 0 R 5]"
)


@pytest.mark.requirement("I2-8-web-search-pages")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: Response(gzip.compress(ARTICLE.encode()), media_type="text/html"), ["# Otters"]),
        (
            lambda _: Response(
                gzip.compress(ARTICLE.encode()), headers={"Content-Encoding": "gzip"}, media_type="text/html"
            ),
            ["# Otters"],
        ),
        (lambda _: Response(gzip.compress(LOG.encode()), media_type="application/gzip"), ["line 59"]),
        (lambda _: Response(gzip.compress(pdf()), media_type="application/pdf"), ["Otters on paper"]),
        (lambda _: Response(LOG.encode("utf-16-le"), media_type="text/plain"), ["07:00 line 0", "line 59"]),
        (lambda _: Response(LOG.encode("utf-16-be"), media_type="text/plain"), ["07:00 line 0", "line 59"]),
        (lambda _: Response(LOG.encode("utf-16"), media_type="text/plain; charset=utf-8"), ["07:00 line 0"]),
        (lambda _: Response(ARTICLE.encode("utf-16-le"), media_type="text/html"), ["# Otters"]),
        (lambda _: Response(ARTICLE.encode("utf-8-sig"), media_type="text/html; charset=latin-1"), ["# Otters"]),
        (lambda _: Response("Öl".encode("utf-8-sig"), media_type="text/plain; charset=latin-1"), ["Öl"]),
        (lambda _: Response("Öl".encode("utf-32"), media_type="text/plain"), ["Öl"]),
        (lambda _: Response(LOG.replace("line 7", "li\0ne 7").encode(), media_type="text/plain"), ["line 7"]),
        (lambda _: PlainTextResponse("# PDFs\n\nThey begin with `%PDF-1.7`, mostly."), ["They begin with"]),
        (lambda _: PlainTextResponse('MAGIC = b"%PDF-"\nxref = "startxref"\n'), ["MAGIC = "]),
        (lambda _: PlainTextResponse("%PDF-1.7 is how it begins.\n"), ["is how it begins"]),
        (lambda _: HTMLResponse(f"<!-- %PDF-1.4 -->{ARTICLE}"), ["# Otters"]),
        (lambda _: Response(b"GIF89a is a magic number, %PDF- another", media_type="text/plain"), ["GIF89a is"]),
        (lambda _: Response(b"HTTP/1.1 200 OK\r\n\r\n" + pdf(), media_type="application/pdf"), ["Otters on paper"]),
        (
            lambda _: Response(BAD_PAGE, media_type="application/pdf"),
            ["[page 1]\nfirst", "[page 2]", "[page 3]\nthird"],
        ),
        (lambda _: Response(pages_pdf([shown("first")], table=False), media_type="application/pdf"), ["first"]),
    ],
)
async def test_a_page_is_read_in_whatever_form_it_is_stored(
    serve: Serve, web: Web, answer: Answer, words: list[str]
) -> None:
    web.pages["page"] = answer
    async with serve() as tools:
        text = (await tools.page(f"{web.url}/page"))["text"]
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(
    ("why", "status", "said", "reason"),
    [
        ("memory", None, "", "it takes more than 1,024 MiB of memory"),
        ("start", 1, "MemoryError", "it takes more than 1,024 MiB of memory"),
        ("ended", -signal.SIGKILL, "", "its reader was killed, as by a system that is short of memory"),
        ("ended", -signal.SIGSEGV, "", "its reader crashed (SIGSEGV)"),
        (
            "start",
            1,
            "ImportError: lxml.html.clean is a separate project",
            "the reader of pages is not installed whole",
        ),
        ("import", None, "No module named 'trafilatura'", "the reader of pages is not installed whole"),
        ("start", None, "", "the process that reads pages cannot be started"),
        ("raised", None, "ValueError", "the reader of pages failed"),
        ("answer", None, "", "the reader of pages failed"),
    ],
)
def test_each_way_in_which_a_reader_ends_has_its_own_words(why: Any, status: int, said: str, reason: str) -> None:
    assert explain(ApartCallFailed(why, "it failed", status=status, said=said)).startswith(reason)


@pytest.mark.requirement("I2-8-web-search-reader")
async def test_a_reader_that_cannot_start_is_said_to_callers_in_the_log_and_by_the_doctor(
    serve: Serve, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: lxml.html.clean module is now a separate project' >&2\nexit 1\n")
    broken.chmod(0o755)
    web.pages["page"] = lambda _: HTMLResponse(ARTICLE)
    async with serve() as tools:
        monkeypatch.setattr(sys, "executable", str(broken))
        refused = await tools.refused(f"{web.url}/page")
        (warning,) = await tools.diagnosis()
        monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
        absent = await tools.refused(f"{web.url}/page")
    reason = "the reader of pages is not installed whole; its operator finds the reason in the log"
    assert refused == f"the text of the page could not be read: {reason}"
    assert warning == f"{reason}; until then no page can be opened"
    assert absent == "the text of the page could not be read: the process that reads pages cannot be started"
    assert "(status 1): ImportError: lxml.html.clean module is now a separate project" in caplog.text


@pytest.mark.requirement("I2-8-web-search-reader")
async def test_a_tenant_takes_half_of_the_readers_at_most(serve: Serve, web: Web) -> None:
    reader = PageReader(httpx2.MockTransport(lambda _: httpx2.Response(500)), logging.getLogger(), timeout_s=1)
    async with AsyncExitStack() as held:
        for _ in range(MAX_READERS // 2):
            await held.enter_async_context(reader._place("a"))
        third = asyncio.create_task(held.enter_async_context(reader._place("a")))
        for _ in range(MAX_READERS // 2):
            await held.enter_async_context(reader._place("b"))
        assert not third.done()
        third.cancel()
