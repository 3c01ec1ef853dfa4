"""Tools of a session: their definitions, what changes them, and their executors."""
