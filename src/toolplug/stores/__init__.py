"""Records and events as bytes."""
