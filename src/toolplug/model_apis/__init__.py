"""The message formats of the model vendors' APIs, their strict mode, and the built-in tools that requests name."""
