"""The store on Redis or Valkey: `store: redis://HOST:PORT/DB`."""
