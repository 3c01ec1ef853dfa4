"""Prompts and resources of providers, for clients of the Model Context Protocol."""
