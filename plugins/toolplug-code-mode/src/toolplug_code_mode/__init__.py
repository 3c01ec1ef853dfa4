"""Code mode: a model writes one script over its own tools."""
