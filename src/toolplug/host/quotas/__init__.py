"""The quotas of tenants and keys: what they use, here and in the other processes of a store."""
