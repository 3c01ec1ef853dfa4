"""The routes of MCP clients, and of MCP servers."""
