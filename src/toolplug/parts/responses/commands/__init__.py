"""The commands that ask a model: `toolplug chat` and `toolplug eval`."""
