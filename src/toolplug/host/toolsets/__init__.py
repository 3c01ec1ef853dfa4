"""The toolsets and allowlists of a host, as they change while it runs."""
