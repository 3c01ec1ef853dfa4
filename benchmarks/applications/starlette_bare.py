"""One Starlette route with nothing around it."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.tools import TEXT, echo


async def hello(request: Request) -> JSONResponse:
    """Answer a small object."""
    return JSONResponse({"text": await echo(text=TEXT)})


app = Starlette(routes=[Route("/v1/hello", hello)])
