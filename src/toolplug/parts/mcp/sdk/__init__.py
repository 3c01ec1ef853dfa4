"""MCP by its official SDK: the only folder that imports the SDK, loaded when MCP is first used."""
