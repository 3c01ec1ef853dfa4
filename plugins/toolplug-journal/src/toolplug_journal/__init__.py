"""A journal of every tool call."""
