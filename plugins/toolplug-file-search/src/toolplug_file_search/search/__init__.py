"""A search: its options, the rankings by words and by meaning, and the results."""
