"""The command line: a file for each command, over the host."""
