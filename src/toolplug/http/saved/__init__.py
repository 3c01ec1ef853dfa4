"""Saved toolsets and notes over HTTP."""
