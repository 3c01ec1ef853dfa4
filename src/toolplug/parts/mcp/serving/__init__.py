"""MCP clients of the host: their sessions, and how they are notified of changes."""
