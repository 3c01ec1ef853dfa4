"""What happens around every call."""
