"""The Python files of the project, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.requirement_table import ROOT


@dataclass(frozen=True)
class Source:
    """One file; `name` is its path from the root."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, which is walked once for all tests."""
        return tuple(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def code_lines(self, first: int, last: int) -> int:
        """How many lines these are without those that are comments: what is explained is not longer for it."""
        lines = self.text.splitlines()[first - 1 : last]
        return sum(not line.lstrip().startswith("#") for line in lines)


def sources(*patterns: str) -> Iterator[Source]:
    """The files that match, in the order of their names."""
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield _read(path)


def product() -> Iterator[Source]:
    """What is shipped: toolplug itself and the provider packages."""
    return sources("src/**/*.py", "plugins/*/src/**/*.py")


def everything() -> Iterator[Source]:
    return sources(
        "src/**/*.py", "plugins/*/src/**/*.py", "plugins/*/tests/**/*.py", "tests/**/*.py", "benchmarks/**/*.py"
    )


@cache
def _read(path: Path) -> Source:
    return Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
