"""From Python functions to tools: what signature and docstring say, and how values pass between JSON and Python."""
