"""Python functions as tools: reading signatures and docstrings, and converting values between JSON and Python."""
