"""The hooks `provider_changed`, with present records first and then changes, and `console_pages`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from toolplug import (
    ConsolePage,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ProviderContext,
    ProviderRecord,
    open_host,
    tool,
)
from toolplug.errors import InvalidDefinition
from toolplug.host.host import Host

pytestmark = pytest.mark.anyio

ROOT = Principal("root", scopes=frozenset({"admin", "operator"}))
SEVERAL: Mapping[str, object] = {"providers": {"hello": {"enabled": True}}, "store": "memory://"}


class Notes(FunctionProvider):
    """A provider with one tool."""

    @tool
    async def note(self) -> str:
        return "x"

    def console_pages(self) -> list[ConsolePage]:
        return [ConsolePage(id="notes", title="Notes", path="/v1/notes", rows="notes", columns=("text",))]


class Following(FunctionProvider):
    """Remembers what it hears."""

    site: ProviderContext

    async def start(self, site: ProviderContext) -> None:
        self.site = site
        self.heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def provider_changed(self, record: ProviderRecord) -> None:
        self.heard.put_nowait((record.key, record.state))

    async def next(self, count: int) -> set[tuple[str, str]]:
        async with asyncio.timeout(30):
            return {await self.heard.get() for _ in range(count)}


class Failing(FunctionProvider):
    """Fails at each change, and offers no valid page."""

    def provider_changed(self, record: ProviderRecord) -> None:
        raise ValueError("a secret text")

    def console_pages(self) -> Any:
        return ["no page"]


def host_of(*providers: FunctionProvider) -> Host:
    return open_host(SEVERAL, environ={}, providers=list(providers))


@pytest.mark.requirement("C-12-provider-changed")
async def test_a_plugin_hears_the_present_records_first_and_then_each_change() -> None:
    following = Following()
    async with host_of(following, Notes()) as host:
        first = await following.next(3)
        await host.disable("hello", by=ROOT)
        second = await following.next(1)
        await host.enable("hello", by=ROOT)
        third = await following.next(1)
        assert following.heard.empty()
    assert first == {("hello", "active"), ("following", "active"), ("notes", "active")}
    assert (second, third) == ({("hello", "disabled")}, {("hello", "active")})


@pytest.mark.requirement("C-12-provider-changed")
async def test_a_late_plugin_hears_of_providers_that_run_already() -> None:
    following = Following()
    async with host_of(following) as host:
        await following.next(2)
        await host.disable("following", by=ROOT)
        await host.enable("following", by=ROOT)
        assert await following.next(2) == {("hello", "active"), ("following", "active")}


async def test_one_that_fails_affects_nobody_else_and_its_text_stays_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    following = Following()
    async with host_of(Failing(), following, Notes()):
        assert len(await following.next(4)) == 4
        pages = following.site.console_pages()
    assert [(page.id, page.path) for page in pages] == [("notes", "/v1/notes")]
    assert "provider_changed() of provider 'failing' raised ValueError" in caplog.text
    assert "console_pages() of provider 'failing' raised TypeError" in caplog.text
    assert "a secret text" not in caplog.text


@pytest.mark.requirement("C-12-console-pages")
async def test_the_path_of_a_page_begins_with_the_mount_of_its_plugin() -> None:
    following = Following()
    config = {"providers": {"notes": {"type": f"{__file__}:Notes", "enabled": True, "mount": "/mine"}}}
    async with open_host(config, environ={}, providers=[following]):
        assert [page.path for page in following.site.console_pages()] == ["/mine/v1/notes"]


@pytest.mark.requirement("C-12-console-pages")
@pytest.mark.parametrize(
    "wrong", [{"id": "Notes"}, {"id": "a" * 41}, {"path": "v1/notes"}, {"columns": ()}, {"columns": "text"}]
)
def test_a_page_with_a_wrong_id_path_or_columns_is_refused(wrong: dict[str, Any]) -> None:
    fields = {"id": "notes", "title": "Notes", "path": "/v1/notes", "rows": "notes", "columns": ("text",), **wrong}
    with pytest.raises(InvalidDefinition, match="console page"):
        ConsolePage(**fields)


async def test_a_registry_without_a_host_passes_on_changes_too() -> None:
    following = Following()
    async with FunctionRegistry([following]):
        assert await following.next(1) == {("following", "active")}
