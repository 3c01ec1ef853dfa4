"""Event streams of a session, and the log that they continue."""
