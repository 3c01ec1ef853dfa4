"""Toolsets and agents over HTTP."""
