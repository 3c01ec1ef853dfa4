"""Reading and checking the configuration file, and its JSON Schema."""
