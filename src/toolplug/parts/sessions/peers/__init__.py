"""Sessions that several processes serve: their records, and what each process does for the others."""
