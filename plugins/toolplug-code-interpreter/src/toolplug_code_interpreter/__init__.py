"""A toolplug provider: Python in containers that reach neither the network nor the host."""
