"""Provider packages: writing, finding and starting them, and serving their tools as one executor."""
