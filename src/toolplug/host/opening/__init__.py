"""Opening a host: its parts in their order, and what each of them is given."""
