"""What a host and its parts know of one another."""
