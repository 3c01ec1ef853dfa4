"""A journal of every tool call, and rules that veto calls."""
