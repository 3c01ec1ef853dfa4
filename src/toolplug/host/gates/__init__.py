"""What stands before a call, and what it says to a caller."""
