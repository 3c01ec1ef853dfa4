"""What authors of providers and hosts test with."""
