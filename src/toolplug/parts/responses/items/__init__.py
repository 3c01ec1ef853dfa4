"""Items of a response: how the input, calls of tools and their results are written."""
