"""Toolsets of another toolplug host: `from: host:URL`."""
