"""Limits of calls: resolved from the configuration, applied in this process, and shared by all processes of a store."""
