"""Validating values with JSON Schemas, bounded in time and in memory."""
