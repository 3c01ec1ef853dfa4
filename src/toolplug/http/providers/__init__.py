"""Providers over HTTP: their own routes, and what an operator sees and changes."""
