"""The tools of FastMCP servers, as a provider of toolplug."""
