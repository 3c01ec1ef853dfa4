"""Bodies that describe a server: nothing in them may start a process (HAZARDS.md, Trust)."""

from __future__ import annotations

from typing import TypeVar

import orjson
from pydantic import BaseModel

from toolplug.http.doors.body import read_body
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import check_is_json, read_model
from toolplug.http.problem import HttpProblem

M = TypeVar("M", bound=BaseModel)

_OF_COMMANDS = ("command", "args", "env", "cwd")


async def read_server(exchange: Exchange, model: type[M]) -> M:
    """The body. Raises `HttpProblem`, and first of all for one that names a command."""
    check_is_json(exchange)
    body = await read_body(exchange.receive, exchange.max_body)
    _refuse_commands(body)
    return read_model(body, model)


def _refuse_commands(body: bytes) -> None:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    named = [name for name in _OF_COMMANDS if isinstance(fields, dict) and name in fields]
    if named:
        message = "a server that is started by a command is taken from the operator's file only; add one by its url"
        raise HttpProblem(403, "stdio_from_http", message, param=named[0])
