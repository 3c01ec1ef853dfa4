"""Chat completions: requests of that API over the loop of responses, and its answers."""
