"""One page for each public class, which mkdocs makes when it builds the site (`hooks:` in `mkdocs.yml`).

The pages are no files of the repository: mkdocstrings fills them in from the code, so that none can be out of date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

MODULES = (
    "toolplug",
    "toolplug.http",
    "toolplug.stores",
    "toolplug.mcp_extensions",
    "toolplug.config",
    "toolplug.catalog",
    "toolplug.search",
    "toolplug.foreign",
    "toolplug.runtime",
    "toolplug.cluster",
    "toolplug.sqlite",
    "toolplug.apart",
    "toolplug.responses",
    "toolplug.client",
    "toolplug.testing",
    "toolplug.testing.in_process",
    "toolplug.errors",
)
"""The public modules, in the order of the reference. A class of several modules has its page in the first one."""

OVERVIEW = "reference/python.md"
_PAGE = """---
title: {name}
---

::: {name}
    options:
      filters: ["!^_"]
      heading_level: 1
      inherited_members: true
      show_attribute_values: false
      show_if_no_docstring: true
      show_root_full_path: true
"""


def exports() -> Iterator[tuple[str, str, object]]:
    """Yield (module, name, value) of each public name, once, under the first module that has it."""
    seen: set[int] = set()
    for module in map(import_module, MODULES):
        for name in public_names(module):
            value = getattr(module, name)
            if id(value) not in seen:
                seen.add(id(value))
                yield module.__name__, name, value


def class_pages() -> Mapping[str, list[str]]:
    """Map each public module to the full names of the classes that have their page under it."""
    pages: dict[str, list[str]] = {}
    for module, name, value in exports():
        if inspect.isclass(value):
            pages.setdefault(module, []).append(f"{module}.{name}")
    return pages


def page_of(full_name: str) -> str:
    """Return the path of a class's page, relative to `docs`."""
    return f"reference/python/{full_name}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, under the overview of the Python API."""
    config["nav"] = _with_pages(config["nav"])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    for name in chain.from_iterable(class_pages().values()):
        files.append(File.generated(config, page_of(name), content=_PAGE.format(name=name)))
    return files


def _with_pages(entry: Any) -> Any:
    """Return a part of the navigation, with the overview replaced by a section of it and the pages."""
    if entry == OVERVIEW:
        return {"Python API": [OVERVIEW, *({module: _titled(names)} for module, names in class_pages().items())]}
    if isinstance(entry, list):
        return [_with_pages(part) for part in cast("list[Any]", entry)]
    if isinstance(entry, dict):
        return {title: _with_pages(part) for title, part in cast("dict[str, Any]", entry).items()}
    return entry


def _titled(names: Sequence[str]) -> list[dict[str, str]]:
    return [{name.rpartition(".")[2]: page_of(name)} for name in names]


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`, or without one the public names that the module itself defines."""
    names: Sequence[str] | None = getattr(module, "__all__", None)
    return list(names) if names is not None else [name for name in vars(module) if _defined_by(module, name)]


def _defined_by(module: ModuleType, name: str) -> bool:
    return not name.startswith("_") and getattr(vars(module)[name], "__module__", "") == module.__name__
