"""Tools of LangChain, as a provider of toolplug."""
