"""A FastAPI application that mounts toolplug: three lines, and its own code calls the tools in process.

Run it with `uvicorn examples.fastapi_host:app`; `examples/providers.yaml` says which tools there are.
"""

from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from toolplug import CallContext, Principal, open_host
from toolplug.http import create_app

host = open_host(Path(__file__).with_name("providers.yaml"))
app = FastAPI(lifespan=host.lifespan)
app.mount("/tools", create_app(host))


class Ask(BaseModel):
    """What the application's own users send."""

    name: str


@app.post("/greet")
async def greet(ask: Ask) -> dict[str, str]:
    """Use a tool in process: the same tools, without HTTP in between."""
    me = Principal(subject="greeter", scopes=frozenset({"tools:call"}))
    result = await host.executor_for(me).call("hello", {"name": ask.name}, CallContext(principal=me))
    return {"status": result.status, "output": result.output}


@app.get("/{rest:path}")
async def everything_else(rest: str) -> dict[str, str]:
    """A catch-all route does not stand in the way of the mount."""
    return {"nothing at": rest}
