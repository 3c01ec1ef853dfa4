"""Saved toolsets: an owner's choice of tools with notes, kept as documents; one of them can be equipped."""
