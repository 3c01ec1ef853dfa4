"""Starlette routes with nothing around them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def greet(request: Request) -> JSONResponse:
    """Say hello, as the route of the tutorial's provider does."""
    return JSONResponse({"greeting": "Hello, t1!"})


async def take(request: Request) -> JSONResponse:
    """Decode what was sent."""
    sent = await request.json()
    return JSONResponse({"id": sent["id"], "status": "done"})


@asynccontextmanager
async def opened() -> AsyncGenerator[Starlette]:
    """The application."""
    yield Starlette(routes=[Route("/v1/hello", greet), Route("/v1/take", take, methods=["POST"])])
