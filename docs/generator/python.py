"""`python.md`: the public names; classes have a page each, and mkdocstrings fills in the functions and values."""

from __future__ import annotations

import inspect

from docs.generator.api_pages import MODULES, exports, page_of
from docs.generator.markdown import page, sentences, table

_HEAD = "The public names of each module. Each class has a page. Other names may change without notice."


def python_page() -> str:
    """The page."""
    listed = list(exports())
    parts = [_module(module, [(name, value) for of, name, value in listed if of == module]) for module in MODULES]
    return page("Python API", _HEAD, *parts)


def _module(module: str, names: list[tuple[str, object]]) -> str:
    rows = [(_link(module, name), _summary(value)) for name, value in names if inspect.isclass(value)]
    blocks = [f"::: {module}.{name}" for name, value in names if not inspect.isclass(value)]
    return "\n\n".join([f"## {module}", *([table(["class", "meaning"], rows)] if rows else []), *blocks])


def _link(module: str, name: str) -> str:
    return f"[`{name}`]({page_of(f'{module}.{name}').removeprefix('reference/')})"


def _summary(value: object) -> str:
    return sentences((inspect.getdoc(value) or "").partition("\n\n")[0])
