"""The records of a host in PostgreSQL: `store: postgresql://…`."""
