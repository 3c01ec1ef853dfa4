"""What comes from elsewhere: tools, made harmless and valid, and the files of MCP servers of other programs."""

from toolplug.catalog.text import clean_text, cleaned_description, in_one_line

__all__ = [
    "clean_text",
    "cleaned_description",
    "in_one_line",
]
