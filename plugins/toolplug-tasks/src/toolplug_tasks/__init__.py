"""Tasks of Model Context Protocol, as a plugin of toolplug: calls that go on after their request."""
