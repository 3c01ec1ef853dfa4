"""MCP servers as a client of theirs: connections, child processes, and the tools of one server."""
