"""Reads and writes the files in which other programs keep their MCP servers."""
