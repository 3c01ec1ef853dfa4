"""Provider packages and files that a configuration names: found, imported, and given their settings."""
