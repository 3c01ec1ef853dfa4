"""What an operator sees and changes of a running host."""
