"""Writes the pages of `docs/reference` that say what the code says: `python -m docs.generator`."""
