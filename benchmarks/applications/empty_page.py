"""A page of one letter, without scripts and styles."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from starlette.types import ASGIApp


async def page(_: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse("<!doctype html><title>Empty</title><body>a")


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The application."""
    yield Starlette(routes=[Route("/console", page)])
