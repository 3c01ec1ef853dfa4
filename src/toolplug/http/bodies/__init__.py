"""Bodies of requests: read within limits of bytes, of items, and of memory for those that have not ended."""
