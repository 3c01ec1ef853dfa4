"""The plugin: its page, and what the page asks of it in addition to the host's API."""

from __future__ import annotations

from asyncio import to_thread
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from toolplug import FunctionProvider, Principal, ProviderContext, route
from toolplug_console.assets import PAGE, asset_response, read_assets
from toolplug_console.settings import Settings

READ = "tools:read"


class Console(FunctionProvider):
    """A web page for operators. The page is public and holds no data; every datum needs the visitor's key."""

    Config = Settings
    config: Settings

    async def start(self, site: ProviderContext) -> None:
        """Read the files of the page."""
        self._assets = await to_thread(read_assets)

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
        }
