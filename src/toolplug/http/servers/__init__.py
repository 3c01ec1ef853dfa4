"""MCP servers over HTTP, and the catalog for people."""
