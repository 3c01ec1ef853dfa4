"""Credentials: each caller acts as himself behind the host."""
