"""open-responses-server, "Quick start": its application, over the backend that `OPENAI_BASE_URL_INTERNAL` names.

It reads its settings when it is imported, and logs into the folder where it runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from tempfile import TemporaryDirectory

from starlette.types import ASGIApp


@asynccontextmanager
async def opened() -> AsyncGenerator[ASGIApp]:
    """The application; it starts itself when it is served."""
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        yield import_module("open_responses_server.api_controller").app
