"""A plugin framework for the tools that language models call."""
