"""Pages: their text, in parts, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from pypdf import PdfWriter
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

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
        (lambda _: Response(b"%PDF-1.4\nnonsense", media_type="application/pdf"), "the PDF is damaged (PdfStream"),
        (lambda _: Response(pdf(""), media_type="application/pdf"), "the PDF has no text; its pages may be images"),
        (
            lambda _: Response(b"x", headers={"Content-Encoding": "gzip"}),
            "the page cannot be fetched: the answer is com",
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
