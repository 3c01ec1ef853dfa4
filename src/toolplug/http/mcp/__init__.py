"""Model Context Protocol over Streamable HTTP, behind the request checks of every other route."""
