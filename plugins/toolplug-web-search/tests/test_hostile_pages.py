"""Pages that are made to exhaust their reader."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

pytestmark = [pytest.mark.anyio, pytest.mark.judge]

TOO_LARGE = "the text of the page could not be read: it takes more than 1,024 MiB of memory"


def bomb() -> bytes:
    """A PDF whose only page is 200 MB of zeros in 1 KB, compressed twice."""
    content = zlib.compress(zlib.compress(b"0" * 200_000_000, 9), 9)
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R>>",
        b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(content), content),
    ]
    whole = b"%PDF-1.4\n"
    table = b"xref\n0 5\n0000000000 65535 f \n"
    for number, part in enumerate(parts, 1):
        table += b"%010d 00000 n \n" % len(whole)
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    return whole + b"%strailer\n<</Root 1 0 R/Size 5>>\nstartxref\n%d\n%%%%EOF\n" % (table, len(whole))


@pytest.mark.requirement("I2-8-web-search-pages")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: b"<div>" * 1_000_000, "the page has no text"),
        # Which limit is met first depends on the machine: a fast one takes the memory within these seconds.
        (lambda: b"<p>hello there" * 600_000, ("the text of the page could not be read within 20 s", TOO_LARGE)),
        (bomb, "the PDF "),
    ],
)
async def test_a_page_made_to_exhaust_its_reader_is_an_error_and_the_next_one_is_read(
    serve: Callable[..., Any], web: Any, data: Callable[[], bytes], reason: str | tuple[str, ...]
) -> None:
    page = data()
    web.pages["bad"] = lambda _: Response(page)
    web.pages["good"] = lambda _: Response("Otters.", media_type="text/plain")
    async with serve() as tools:
        assert (await tools.refused(f"{web.url}/bad")).startswith(reason)
        assert (await tools.page(f"{web.url}/good"))["text"] == "Otters."
