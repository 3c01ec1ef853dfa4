"""An engine of toolplug: Ray starts the workers of a provider as actors."""
