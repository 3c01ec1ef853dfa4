"""Hooks of plugins around every call."""
