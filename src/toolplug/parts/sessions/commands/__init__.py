"""`toolplug sessions` and its commands."""
