"""The host: the package that knows every part and joins them."""
