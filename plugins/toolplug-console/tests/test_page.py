"""The page and its files: public, small, without data, and under a strict Content-Security-Policy."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from typing import Any

import pytest

from toolplug import Principal
from toolplug_console.assets import read_assets

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

ALICE = Principal("alice", "t1", frozenset({"tools:read"}))
BUDGET = 120 * 1024


@pytest.mark.requirement("I16-1-page")
async def test_anyone_gets_the_page_and_its_files_and_nothing_else(serve: Serve) -> None:
    async with serve(ALICE) as host:
        page = await host.nobody.get("/console")
        named = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
        found = [await host.nobody.get(f"/{name}") for name in named]
        refused = await host.nobody.get("/console/visitor")
        unknown = await host.nobody.get("/console/files/vendor/LICENSE.preact")
        outside = await host.nobody.get("/console/files/..%2f..%2fprovider.py")
        visitor = await host.callers["alice"].client.get("/console/visitor")
    assert page.status_code == 200
    assert len(named) == 6
    assert {each.status_code for each in found} == {200}
    assert (refused.status_code, unknown.status_code, outside.status_code) == (401, 404, 404)
    assert visitor.json() | {"version": ""} == {
        "subject": "alice",
        "tenant": "t1",
        "scopes": ["tools:read"],
        "version": "",
        "keep_calls": 0,
        "remember": True,
        "pages": [],
    }


@pytest.mark.requirement("I16-1-page")
async def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere(serve: Serve) -> None:
    async with serve() as host:
        page = await host.nobody.get("/console")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["connect-src"], policy["frame-ancestors"]) == ("'self'", "'none'")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", page.text)


async def test_a_browser_that_has_a_file_is_not_sent_it_again(serve: Serve) -> None:
    async with serve() as host:
        first = await host.nobody.get("/console/files/app.js")
        again = await host.nobody.get("/console/files/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_without_consent_to_public_routes_the_page_needs_a_key(serve: Serve) -> None:
    async with serve(ALICE, public_routes=False) as host:
        page = await host.nobody.get("/console")
        root = await host.nobody.get("/")
    assert (page.status_code, root.status_code) == (401, 200)


@pytest.mark.requirement("I16-1-root")
async def test_the_root_leads_to_the_console(serve: Serve) -> None:
    async with serve() as host:
        root = await host.nobody.get("/")
    assert (root.status_code, root.headers["location"]) == (307, "/console")


@pytest.mark.requirement("I16-num-size")
def test_scripts_and_styles_fit_the_budget() -> None:
    assets = read_assets()
    size = sum(len(gzip.compress(asset.body, 9)) for asset in assets.values())
    assert size <= BUDGET
    imports = [name for asset in assets.values() for name in re.findall(rb'\bfrom ?"([^"]+)"', asset.body)]
    assert all(name.startswith(b".") for name in imports)
    licences = {item.name for item in files("toolplug_console").joinpath("static/vendor").iterdir()}
    assert {"LICENSE.htm", "LICENSE.preact", "LICENSE.uplot"} <= licences


def test_no_effect_waits_for_a_frame_to_be_painted() -> None:
    """What a person does as soon as something is drawn would find no listener there."""
    static = files("toolplug_console").joinpath("static")
    scripts = [each for folder in (static, static / "pages") for each in folder.iterdir() if each.name.endswith(".js")]
    assert len(scripts) > 10
    assert [each.name for each in scripts if re.search(r"\buseEffect\b", each.read_text("utf-8"))] == []
