"""YAML with positions."""
