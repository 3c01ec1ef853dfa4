"""Behind `toolplug serve`: a host in a process of its own, over HTTP or over standard input and output."""
