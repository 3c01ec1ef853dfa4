"""Tools that come from elsewhere, such as MCP servers and applications: their definitions, made harmless and valid."""
