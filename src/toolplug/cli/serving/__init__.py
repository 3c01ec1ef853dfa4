"""`toolplug serve`: a host in its own process, over HTTP or over standard input and output."""
