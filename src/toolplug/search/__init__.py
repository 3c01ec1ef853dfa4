"""Tool search: an index of deferred tools, the tools that find and call them, and what a conversation has found."""
