"""`python.md`: the public names; mkdocstrings fills them in when the site is built."""

from __future__ import annotations

from types import ModuleType

from docs.generator.markdown import page

import toolplug
import toolplug.client
import toolplug.http
import toolplug.responses
import toolplug.testing

_HEAD = "Everything that you may import. What is not listed here may change without notice."


def python_page() -> str:
    """The page."""
    listed = map(_module, (toolplug, toolplug.http, toolplug.responses, toolplug.client, toolplug.testing))
    return page("Python API", _HEAD, *listed, *map(_whole, ("toolplug.testing.in_process", "toolplug.errors")))


def _module(module: ModuleType) -> str:
    names: list[str] = getattr(module, "__all__", [])
    blocks = "\n\n".join(f"::: {module.__name__}.{name}" for name in names)
    return f"## {module.__name__}\n\n{blocks}" if names else ""


def _whole(module: str) -> str:
    return f"## {module}\n\n::: {module}\n    options:\n      show_root_toc_entry: false"
