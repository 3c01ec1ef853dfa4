"""MCP servers from another program's file into the configuration, whose own text stays as it is."""
