"""Tools as data: definitions, plans, schemas and catalogs, and the functions that reshape catalogs."""
