"""Toolsets: tools under a prefix, made for a session or shared, and the agents that may use them."""
