"""Validation of values with JSON Schemas, in bounded time and memory."""
