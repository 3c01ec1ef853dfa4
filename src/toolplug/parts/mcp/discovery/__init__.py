"""Discovery of the tools of MCP servers: listed in the background, stored, and read without asking a server."""
