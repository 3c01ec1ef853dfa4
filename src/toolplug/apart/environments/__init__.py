"""Environments of their own for providers: what is installed there, and how one is made."""
