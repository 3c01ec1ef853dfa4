"""The approval routes: calls that wait for a person, and that person's decision (CONTRACT.md section 3)."""
