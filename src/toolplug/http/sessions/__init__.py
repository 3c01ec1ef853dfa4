"""The session routes: one thing that applications and their clients do a file (CONTRACT.md section 6)."""
