"""The session routes: one thing that applications and their clients do a file (docs/reference/sessions.md)."""
