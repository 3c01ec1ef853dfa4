"""Outgoing HTTP to checked addresses, and the frames of event streams."""
