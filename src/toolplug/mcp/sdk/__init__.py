"""Model Context Protocol by its official SDK: the one folder that imports it, loaded when it is first spoken."""
