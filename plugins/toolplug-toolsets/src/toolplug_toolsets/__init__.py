"""A provider with which a model chooses among its tools, keeps the choice, and annotates it."""
