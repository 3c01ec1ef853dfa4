"""The configuration file: what it may say, and what it says."""
