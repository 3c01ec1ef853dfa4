"""The MCP servers of a host."""
