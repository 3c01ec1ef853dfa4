"""Reading documents: their formats, their text, and the passages that they are cut into."""
