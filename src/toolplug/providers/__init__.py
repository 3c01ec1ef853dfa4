"""Providers: writing and starting them, and serving their tools as one executor."""
