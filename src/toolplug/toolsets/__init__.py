"""Toolsets: tools under a prefix, for one session or shared, and the allowlists of agents."""
