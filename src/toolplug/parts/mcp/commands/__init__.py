"""The commands of the part."""
