"""The one place that knows every part and joins them."""
