"""A Starlette application that mounts toolplug beside its own routes.

Run it with `uvicorn examples.starlette_host:app`; `examples/providers.yaml` says which tools there are.
"""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from toolplug import open_host
from toolplug.http import create_app


async def everything_else(request: Request) -> PlainTextResponse:
    """A catch-all route does not stand in the way of the mount."""
    return PlainTextResponse(f"nothing at {request.url.path}")


host = open_host(Path(__file__).with_name("providers.yaml"))
routes = [Mount("/tools", create_app(host)), Route("/{rest:path}", everything_else)]
app = Starlette(lifespan=host.lifespan, routes=routes)
