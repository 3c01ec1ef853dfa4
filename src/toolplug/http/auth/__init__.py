"""Who a request comes from: credentials become a principal, or are refused."""
