"""Where clients of MCP learn whose tokens are taken here: protected resource metadata of OAuth 2.0 (RFC 9728).

Only where `auth.jwt` is configured: without it there is no authorization server to name, the documents are 404, and
`WWW-Authenticate` is a plain `Bearer`.
"""

from __future__ import annotations

from starlette.requests import Request
from typing_extensions import TypedDict

from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.errors import HttpProblem, route_not_found
from toolplug.http.requests import HostRequest, HostState, base_url
from toolplug.http.routing import CALL, READ, answers, route

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_MCP = "/mcp"
_SCOPE = f"{READ} {CALL}"
"""What a client of MCP asks its authorization server for."""


class ResourceMetadata(TypedDict):
    """A protected resource, and the authorization servers whose tokens it takes."""

    resource: str
    authorization_servers: list[str]
    scopes_supported: list[str]
    bearer_methods_supported: list[str]


@route("GET", _WELL_KNOWN, None, "The authorization server of this host")
@answers(ResourceMetadata, errors=(404,))
async def host_metadata(request: HostRequest) -> OrjsonResponse[ResourceMetadata]:
    """Answer for the host as a whole. Raises `HttpProblem` where no tokens are configured."""
    return _metadata(request, "")


@route("GET", f"{_WELL_KNOWN}{_MCP}", None, "The authorization server of /mcp")
@answers(ResourceMetadata, errors=(404,))
async def mcp_metadata(request: HostRequest) -> OrjsonResponse[ResourceMetadata]:
    """Answer for `/mcp`. Raises `HttpProblem` where no tokens are configured."""
    return _metadata(request, _MCP)


def _metadata(request: HostRequest, path: str) -> OrjsonResponse[ResourceMetadata]:
    auth = request.state["host"].settings.auth
    if auth is None or auth.jwt is None:
        raise route_not_found()
    document: ResourceMetadata = {
        "resource": f"{base_url(request)}{path}",
        "authorization_servers": [auth.jwt.issuer],
        "scopes_supported": [READ, CALL],
        "bearer_methods_supported": ["header"],
    }
    return OrjsonResponse(document)


def add_challenge(problem: HttpProblem, request: Request[HostState]) -> HttpProblem:
    """Add the challenge that leads a client of MCP to the metadata; return any other error as it is.

    The metadata of a session's endpoint are the host's, whose resource it is part of.
    """
    path = request.state["path"]
    auth = request.state["host"].settings.auth
    if auth is None or auth.jwt is None or not path.endswith(_MCP):
        return problem
    if problem.status != 401 and problem.code != "insufficient_scope":
        return problem
    metadata = f"{base_url(request)}{_WELL_KNOWN}{_MCP if path == _MCP else ''}"
    error = "" if problem.status == 401 else 'error="insufficient_scope", '
    challenge = f'Bearer {error}resource_metadata="{metadata}", scope="{_SCOPE}"'
    return HttpProblem(
        problem.status,
        problem.code,
        problem.message,
        param=problem.param,
        headers={**problem.headers, "WWW-Authenticate": challenge},
        extra=problem.extra,
    )
