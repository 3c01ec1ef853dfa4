"""Model Context Protocol over Streamable HTTP, behind the doors of every other route."""
