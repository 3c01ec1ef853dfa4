"""Tells a channel by a signed webhook when calls wait for a person, and when they are decided."""
