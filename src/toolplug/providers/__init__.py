"""Provider packages: how they are written, found, started and served as one executor."""
