"""Search over text and Markdown files: what tenants upload, and what the operator names."""
