"""What MCP servers list: found out in the background, kept in the store, and read without asking anybody."""
