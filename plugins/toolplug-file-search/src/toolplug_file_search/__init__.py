"""Search over documents: what tenants upload, and what the operator names."""
