"""How the protocol's refusals look on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, RootModel

from toolplug.http.wire_models import ErrorAnswer


class RpcError(BaseModel):
    """What is wrong with a message."""

    code: int
    message: str
    data: object = None


class RpcRefusal(BaseModel):
    """The answer to a message that cannot be served."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    error: RpcError


class Refused(RootModel[ErrorAnswer | RpcRefusal]):
    """The host's own error, or one of the protocol."""
