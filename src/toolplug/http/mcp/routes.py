"""The routes of the protocol as rows of the host's table."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, RootModel

from toolplug.http.errors import ErrorAnswer
from toolplug.http.mcp.endpoint import mcp_end, mcp_message, mcp_stream
from toolplug.http.routing import CALL, EVENTS, JSON_OR_EVENTS, Parameter, answers, route


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


_AGENT = Parameter("agent", "whose tools: an agent's; the header X-Toolplug-Agent says the same")
_VERSION = Parameter("MCP-Protocol-Version", "the version of the protocol", place="header")
_KNOWN = Parameter("Mcp-Session-Id", "what initialize gave; 2025-11-25 and before", place="header")
_PARAMETERS = (_AGENT, _VERSION, _KNOWN)
_REFUSED = {400: Refused, 404: Refused}

_HOST = (
    route("POST", "/mcp", CALL, "A message of Model Context Protocol", parameters=_PARAMETERS)(
        answers(others={202: None, **_REFUSED}, errors=(406, 413, 415, 503), content_types=JSON_OR_EVENTS)(mcp_message)
    ),
    route("GET", "/mcp", CALL, "Changes of the tools, for clients of MCP 2025-11-25", parameters=_PARAMETERS)(
        answers(others=_REFUSED, errors=(405, 406, 503), content_types=EVENTS)(mcp_stream)
    ),
    route("DELETE", "/mcp", CALL, "End a client's session of MCP 2025-11-25", parameters=_PARAMETERS)(
        answers(status=204, others=_REFUSED)(mcp_end)
    ),
)
_SESSION = (item._replace(path="/api/sessions/{code}/mcp", operation=f"session_{item.operation}") for item in _HOST)
MCP_ROUTES = (*_HOST, *_SESSION)
