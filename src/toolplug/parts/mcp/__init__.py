"""Model Context Protocol: clients that the host serves, and servers whose tools it uses."""
