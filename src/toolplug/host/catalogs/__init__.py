"""Whose catalog: what a caller sees."""
