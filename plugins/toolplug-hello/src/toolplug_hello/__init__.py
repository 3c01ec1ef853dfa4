"""The tutorial's provider of toolplug."""
