"""What comes from elsewhere: tools, made harmless and valid, and the files of MCP servers of other programs."""
