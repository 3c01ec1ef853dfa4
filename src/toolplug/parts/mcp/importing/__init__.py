"""Imports MCP servers from another program's file, without changing the other text of the configuration."""
