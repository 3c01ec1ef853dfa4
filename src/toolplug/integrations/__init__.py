"""Tools of a toolplug executor as those of an agent framework, a module each; and tools of frameworks in toolplug."""
