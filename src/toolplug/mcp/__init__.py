"""Model Context Protocol: the tools of a caller for its clients, over whatever carries the messages."""
