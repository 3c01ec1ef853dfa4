"""A server with prompts, resources and instructions, made with the SDK: `stdio`, or `http`, which writes its port.

With `uncompleted` after that it has no completions.
"""

from __future__ import annotations

import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import Completion, Icon

server = MCPServer("library", instructions="Ask for one book\u202e at a time.")
"""Its instructions have a character that changes the direction of text."""

BOOKS = {"otters": "Otters hold hands."}


@server.prompt(title="Summarize", icons=[Icon(src="https://example.com/icon.png")])
def summarize(book: str) -> str:
    """Summarize a book."""
    return f"Summarize {book}."


@server.prompt()
def broken() -> str:
    """Fail."""
    raise RuntimeError("the password is rosebud")


@server.resource("book://index", title="Index")
def index() -> str:
    """All books."""
    return "\n".join(BOOKS)


@server.resource("book://by/{name}")
def book(name: str) -> str:
    """One book."""
    return BOOKS[name]


VIEW = "ui://library/view"


@server.resource(VIEW, mime_type="text/html;profile=mcp-app")
def view() -> str:
    """The view of a tool: 4 MiB, more than a model may be sent."""
    page = '<p class="book">'
    return page * (4 * 1024 * 1024 // len(page))


async def completed(reference: object, argument: object, context: object) -> Completion:
    """Suggest every book."""
    return Completion(values=[*BOOKS])


if "uncompleted" not in sys.argv:
    server.completion()(completed)


@server.tool(
    title="Touch a book",
    icons=[Icon(src="https://example.com/touch.png"), Icon(src="http://example.com/")],
    meta={"ui": {"resourceUri": VIEW}, "theirs": "a\u202eb", "toolplug/name": "another"},
)
async def touch(uri: str, context: Context) -> str:
    """Say that a resource has been updated."""
    await context.notify_resource_updated(uri)
    return "touched"


@server.tool()
async def learn(name: str, context: Context) -> str:
    """Have one prompt more."""
    server.add_prompt(Prompt.from_function(broken, name=name))
    await context.notify_prompts_changed()
    return "learned"


def serve_http() -> None:
    """Serve on a free port of this machine."""
    unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app(transport_security=unguarded)
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    serve_http() if sys.argv[1] == "http" else server.run("stdio")
