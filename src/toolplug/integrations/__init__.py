"""Tools of a toolplug executor as those of an agent framework; each module needs the framework of its name."""
