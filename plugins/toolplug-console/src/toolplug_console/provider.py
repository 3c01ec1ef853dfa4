"""The plugin: its page, and what the page asks of it in addition to the host's API."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib.metadata import version
from time import time

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from toolplug import (
    FunctionProvider,
    Principal,
    ProviderContext,
    ProviderRecord,
    route,
)
from toolplug_console.assets import PAGE, asset_response, read_assets
from toolplug_console.call_lines import RecentCrashes
from toolplug_console.feed import CallFeed, TooManyViewers, Viewer, ViewerPlaces, event
from toolplug_console.hour import Hour
from toolplug_console.seen_call import OPERATOR
from toolplug_console.settings import Settings
from toolplug_console.shared_hour import OWNER, SharedHour, call_log

READ = "tools:read"
HEARTBEAT_S = 15.0
LONGEST_STREAM_S = 300.0
"""Then a stream ends, and the page opens it again with its key, which may have been revoked."""

_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Console(FunctionProvider):
    """A web page for operators. The page is public and holds no data; every datum needs the visitor's key."""

    Config = Settings
    config: Settings

    def __init__(self, config: object = None, *, key: str = "") -> None:
        super().__init__(config, key=key)
        self._hour = Hour(time) if self.config.remember else None
        self.feed = CallFeed(
            self._switch_hooks,
            self.config.keep_calls,
            frozenset(self.config.sensitive),
            self._hour,
        )
        # For a hook that takes `call`, the arguments of each call are copied.
        self.after_call = self.feed.note_with_arguments if self.config.keep_calls else self.feed.note

    def _switch_hooks(self, on: bool) -> None:
        self._site.call_hooks.set(on)

    async def start(self, site: ProviderContext) -> None:
        """Read the files of the page, and be ready for visitors."""
        self._assets = await site.in_thread(read_assets)
        self._site = site
        self._states: dict[str, str] = {}
        self._followers: set[Viewer] = set()
        self._places = ViewerPlaces()
        self.crashes = RecentCrashes(traces=self.config.traces)
        self._homes: dict[str, str] = {}
        self.feed.open()
        self._shared: SharedHour | None = None
        self._filled: set[str] = set()
        if self._hour is not None:
            self._shared = SharedHour(self.feed, self._hour, site.store(OWNER), self.log)
            self._sharing = asyncio.create_task(self._shared.run(), name="toolplug-console-hour")

    async def aclose(self) -> None:
        """Let the visitors go."""
        if hasattr(self, "_shared"):
            if self._shared is not None:
                self._sharing.cancel()
                with suppress(asyncio.CancelledError):
                    await self._sharing
                await self._shared.write_rest()
            self.feed.close()
            self.crashes.close()

    async def provider_changed(self, record: ProviderRecord) -> None:
        """Let every open overview know that a provider has changed, and read a journal that has started."""
        self._states[record.key] = record.state
        self._homes.update(dict.fromkeys(record.tools, record.key))
        for follower in self._followers:
            follower.take(event("provider", {"key": record.key, "state": record.state}), 0)
        if record.type == "journal" and record.state == "active":
            await self._fill(record.key)

    async def _fill(self, journal: str) -> None:
        """Add the calls of before the start that this journal has kept, once."""
        log = call_log(self._site.plugins.get_plugin(journal))
        if self._shared is None or log is None or journal in self._filled:
            return
        self._filled.add(journal)
        try:
            await self._shared.fill(log, self._homes)
        except sqlite3.Error as error:
            self.log.warning("the calls of the last hour are not read from %r: %s", journal, error)

    @route("GET", "/console", public=True)
    async def page(self, request: Request) -> Response:
        """The page itself."""
        return asset_response(self._assets, PAGE, request)

    @route("GET", "/console/files/{name:path}", public=True)
    async def file(self, request: Request) -> Response:
        """A script, a style or an image of the page."""
        return asset_response(self._assets, request.path_params["name"], request)

    @route("GET", "/console/visitor", scope=READ)
    async def visitor(self, request: Request) -> dict[str, object]:
        """Who the visitor is, and what the page may offer because of that."""
        principal: Principal = request.state.principal
        return {
            "subject": principal.subject,
            "tenant": principal.tenant,
            "scopes": sorted(principal.scopes),
            "version": version("toolplug"),
            "keep_calls": self.config.keep_calls,
            "remember": self.config.remember,
            "pages": [asdict(page) for page in self._site.console_pages() if principal.has_scope(page.scope)],
        }

    @route("GET", "/console/providers", scope=READ)
    async def providers(self, request: Request) -> Response:
        """The state of each provider, and each change of one as it happens."""
        life = ExitStack()
        try:
            life.enter_context(self._places.place(request.state.principal))
        except TooManyViewers:
            raise _too_many() from None
        follower = Viewer(None)
        for key, state in self._states.items():
            follower.take(event("provider", {"key": key, "state": state}), 0)
        self._followers.add(follower)
        life.callback(self._followers.discard, follower)
        return self._stream(follower, life)

    @route("GET", "/console/calls", scope=READ)
    async def calls(self, request: Request) -> Response:
        """The calls of the visitor's tenant as they are answered, of all for `operator`; first the recent ones."""
        life = ExitStack()
        try:
            viewer = life.enter_context(self.feed.viewer(request.state.principal))
        except TooManyViewers:
            raise _too_many() from None
        return self._stream(viewer, life)

    @route("GET", "/console/hour", scope=READ)
    async def hour(self, request: Request) -> Response:
        """The last hour in numbers, of the visitor's tenant, of all for `operator`."""
        if self._hour is None:
            raise HTTPException(404, "this console remembers no calls; its setting remember is false")
        visitor: Principal = request.state.principal
        self.feed.sort_notes()
        numbers = self._hour.numbers(None if visitor.has_scope(OPERATOR) else visitor.tenant)
        return Response(orjson.dumps(numbers), headers={"cache-control": "no-store"}, media_type="application/json")

    @route("GET", "/console/calls/{id:int}", scope=READ)
    async def call(self, request: Request) -> dict[str, object]:
        """One call that was seen; arguments and result as far as they are kept and the visitor may see them."""
        found = self.feed.detail(request.path_params["id"], request.state.principal)
        if found is None:
            raise HTTPException(404, "this call is not remembered any longer")
        return found

    @route("GET", "/console/crashes/{request}/{call:path}", scope=OPERATOR)
    async def crash(self, request: Request) -> dict[str, str]:
        """Where a call has just crashed; with the setting `traces` its whole trace. Calls of every tenant are there."""
        ids = request.path_params
        found = self.crashes.get(ids["call"], ids["request"])
        if found is None:
            raise HTTPException(404, "no crash of this call is remembered")
        return found

    def _stream(self, viewer: Viewer, life: ExitStack) -> Response:
        return StreamingResponse(self._follow(viewer, life), headers=_STREAM_HEADERS, media_type="text/event-stream")

    async def _follow(self, viewer: Viewer, life: ExitStack) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_STREAM_S
        with life:
            closing = asyncio.create_task(self._site.closing.wait(), name="toolplug-console-closing")
            closing.add_done_callback(lambda _: viewer.wake())
            life.callback(closing.cancel)
            while not closing.done() and loop.time() < until:
                batches = await viewer.batches(HEARTBEAT_S)
                yield b"".join(batches) or b": nothing new\n\n"


def _too_many() -> HTTPException:
    return HTTPException(
        429, "too many visitors follow this host, or of this tenant or key; close a tab", {"retry-after": "60"}
    )
