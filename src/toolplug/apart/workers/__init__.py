"""Providers whose processes are elsewhere: workers that dial in to the host (docs/how-to/run-workers.md)."""
