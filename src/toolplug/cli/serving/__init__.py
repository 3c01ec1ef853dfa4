"""Behind `toolplug serve`: a host in a process of its own."""
