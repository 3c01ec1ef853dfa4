"""The HTTP face of a host."""
