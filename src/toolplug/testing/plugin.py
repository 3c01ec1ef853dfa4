"""The pytest plugin that is there wherever toolplug is installed."""
