"""What a host gives to each of its parts."""
