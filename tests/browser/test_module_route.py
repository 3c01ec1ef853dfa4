"""`GET /toolplug.js`, as a browser or a proxy sees it."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-browser-client")]

LISTED = "https://pages.example"
CONFIGURATION = settings(providers=None, http={"allowed_origins": [LISTED]})


async def test_the_module_is_open_and_says_what_it_is() -> None:
    async with open_host(CONFIGURATION, environ={}) as host, client_of(create_app(host)) as client:
        answered = await client.get("/toolplug.js")
    assert answered.status_code == 200
    assert answered.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert "export async function connect(" in answered.text
    assert "access-control-allow-origin" not in answered.headers


async def test_a_browser_that_has_the_module_is_not_sent_it_again() -> None:
    async with open_host(CONFIGURATION, environ={}) as host, client_of(create_app(host)) as client:
        etag = (await client.get("/toolplug.js")).headers["etag"]
        again = await client.get("/toolplug.js", headers={"If-None-Match": f'"other", W/{etag}'})
        other = await client.get("/toolplug.js", headers={"If-None-Match": '"other"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert other.status_code == 200


@pytest.mark.requirement("C-5-origin")
async def test_pages_of_listed_origins_may_import_the_module_and_others_may_not() -> None:
    async with open_host(CONFIGURATION, environ={}) as host, client_of(create_app(host)) as client:
        listed = await _get_from(client, LISTED)
        own = await _get_from(client, "http://localhost")
        foreign = await _get_from(client, "https://elsewhere.example")
    assert listed == (200, LISTED, "origin")
    assert own == (200, "http://localhost", "origin")
    assert foreign[:2] == (403, None)


async def _get_from(client: AsyncClient, origin: str) -> tuple[int, str | None, str | None]:
    answered = await client.get("/toolplug.js", headers={"Origin": origin})
    return answered.status_code, answered.headers.get("access-control-allow-origin"), answered.headers.get("vary")


async def test_the_page_of_links_names_the_module() -> None:
    async with open_host(CONFIGURATION, environ={}) as host, client_of(create_app(host)) as client:
        page = await client.get("/")
    assert '<a href="/toolplug.js">' in page.text
