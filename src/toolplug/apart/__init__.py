"""Providers that run in a process of their own (docs/how-to/providers-in-a-process-of-their-own.md)."""
