"""Tasks, threads and caches that every other layer may use; it knows nothing of tools."""
