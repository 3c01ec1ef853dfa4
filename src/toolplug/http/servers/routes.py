"""The routes of MCP servers, and of the catalog."""

from __future__ import annotations

from toolplug.http.routing import ADMIN, READ, HostRoute, Parameter
from toolplug.http.servers.handlers import (
    accept_tools,
    add_server,
    change_server,
    discover_server,
    list_servers,
    remove_server,
    show_catalog,
    show_server,
)
from toolplug.http.servers.models import (
    AcceptBody,
    AddServerBody,
    CatalogAnswer,
    ChangeServerBody,
    ServerAnswer,
    ServerList,
)

_ALL = "/api/mcp-servers"
_ONE = f"{_ALL}/{{id}}"
_WAIT = Parameter("wait", "for the end of the discovery: true, or a duration of at most 60s")
_SESSION = Parameter("session", "also the tools of this session, live where they are")
_BODY = (400, 413, 415)

SERVER_ROUTES = (
    HostRoute("GET", _ALL, READ, list_servers, "The MCP servers", ServerList),
    HostRoute(
        "POST",
        _ALL,
        ADMIN,
        add_server,
        "Add an MCP server by its URL",
        ServerAnswer,
        AddServerBody,
        (_WAIT,),
        errors=(*_BODY, 409, 422),
        status=202,
    ),
    HostRoute("GET", _ONE, READ, show_server, "One MCP server", ServerAnswer, errors=(404,)),
    HostRoute(
        "PATCH",
        _ONE,
        ADMIN,
        change_server,
        "Change an MCP server",
        ServerAnswer,
        ChangeServerBody,
        errors=(*_BODY, 404, 409, 422),
    ),
    HostRoute("DELETE", _ONE, ADMIN, remove_server, "Remove an MCP server", errors=(404, 409), status=204),
    HostRoute(
        "POST",
        f"{_ONE}/discover",
        ADMIN,
        discover_server,
        "List the tools of an MCP server anew",
        ServerAnswer,
        None,
        (_WAIT,),
        {200: ServerAnswer},
        (400, 404, 409),
        status=202,
    ),
    HostRoute(
        "POST",
        f"{_ONE}/accept",
        ADMIN,
        accept_tools,
        "Accept the changed definitions of quarantined tools",
        ServerAnswer,
        AcceptBody,
        errors=(*_BODY, 404, 409),
    ),
    HostRoute(
        "GET",
        "/api/catalog",
        READ,
        show_catalog,
        "Every tool that there is, for people who choose",
        CatalogAnswer,
        None,
        (_SESSION,),
        {304: None},
        (400, 404, 410),
    ),
)
