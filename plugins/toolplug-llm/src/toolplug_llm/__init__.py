"""The tools of plugins of `llm`, as a provider of toolplug."""
