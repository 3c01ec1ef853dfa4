"""The rules of a provider."""
