"""Saved toolsets: an owner's own choice of tools with notes, kept as documents, and equipped or not."""
