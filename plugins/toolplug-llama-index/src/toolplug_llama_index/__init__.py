"""Tools of LlamaIndex, as a provider of toolplug."""
