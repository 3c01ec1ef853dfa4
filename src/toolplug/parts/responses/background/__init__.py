"""Responses in the background, which any process that shares the store can be asked about."""
