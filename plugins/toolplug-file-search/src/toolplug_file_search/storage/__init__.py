"""The index: its tables, and what a caller may see and change in them."""
