"""The toolsets and allowlists of a running host."""
