"""A FastAPI application that serves the shipped `POST /v1/responses` beside its own routes.

`examples/responses.yaml` says which model answers and which tools it has. Run it with
`uvicorn examples.responses_host:app`; a client's base URL is then `http://localhost:8000/ai/v1`.
"""

from pathlib import Path

from fastapi import FastAPI

from toolplug import open_host
from toolplug.http import create_app

host = open_host(Path(__file__).with_name("responses.yaml"))
app = FastAPI(lifespan=host.lifespan)
app.mount("/ai", create_app(host))


@app.get("/{rest:path}")
async def everything_else(rest: str) -> dict[str, str]:
    """A catch-all route does not stand in the way of the mount."""
    return {"nothing at": rest}
