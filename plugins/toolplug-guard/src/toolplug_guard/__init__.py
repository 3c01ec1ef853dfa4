"""A guard of tool calls: secrets and personal data are masked in results, and rules refuse calls."""
