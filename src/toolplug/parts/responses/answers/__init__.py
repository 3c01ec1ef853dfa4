"""The answers of a model's server: from bytes to deltas, and from fragments to calls."""
