"""A web console: what tools do, and what they may."""
