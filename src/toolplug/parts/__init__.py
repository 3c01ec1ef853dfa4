"""Built-in parts of a host: each is a folder with what belongs to one feature, and its part in `part.py`."""
