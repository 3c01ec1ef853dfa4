"""The server whose tool `fastmcp call` calls: FastMCP's own quickstart, "hello" instead of "greet"."""

from fastmcp import FastMCP

mcp = FastMCP("hello")


@mcp.tool
def hello(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
