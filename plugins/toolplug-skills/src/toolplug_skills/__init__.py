"""Folders of skills, as a provider of toolplug."""
