"""The same tool, in the file that `toolplug serve` serves."""

from toolplug import tool


@tool
def hello(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
