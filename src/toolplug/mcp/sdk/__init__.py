"""Model Context Protocol by its official SDK: the one folder that imports it, loaded when the protocol is first spoken."""
