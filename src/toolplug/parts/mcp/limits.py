"""The limits of the part that the reference names, and the keys of its records.

`mcp-server/<hash of tenant and id>`  a server of one tenant, or a change of a server of the file for all tenants
"""

from __future__ import annotations

SERVERS = "mcp-server/"

MAX_MESSAGE_BYTES = 6 * 1024 * 1024
"""Of one message of a server: a view of MCP Apps (`ui://`) of 4 MiB, with what JSON adds to it."""

LONGEST_DISCOVERY_S = 600.0
"""The longest `discovery_timeout` of a server."""

MOST_ADDED = 100
"""The number of servers that one tenant may add."""

TOGETHER_S = 10.0
"""Processes that start within so many seconds take the tools that the first one lists."""
