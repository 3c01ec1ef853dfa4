"""Prompts and resources for MCP clients: lists and requests of a caller, and what servers behind a host offer."""
