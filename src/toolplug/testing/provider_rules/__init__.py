"""The rules of a provider, a file for each thing that they are about."""
