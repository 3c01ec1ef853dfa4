"""Phrases that were replaced by the words of the field are in no message and on no page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.project.sources import product
from tests.requirement_table import ROOT

REPLACED = {
    r"\bis right: \d": "is valid: …",
    r"\bdoubt(s|ful)?\b": "warning",
    r"\bis written; next": "Created …. Next steps:",
    r"\bstands twice\b": "duplicate …",
    r"\b(was|were|configuration) (not )?read again\b": "reloaded",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bSAID BY\b": "SOURCE",
    r"^CUT$": "REMOVED",
    r"^# (How|Whom|What|Where|Which|Who|Why) ": "a noun, such as `# Authentication`",
}
"""The second table of the glossary: a pattern, and what to write instead."""


def messages() -> Iterator[tuple[str, str]]:
    """Every text in the code that is no docstring, with its place."""
    for source in product():
        docstrings = {
            id(node.body[0].value)
            for node in source.nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in source.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{source.name}:{node.lineno}", node.value


def pages() -> Iterator[tuple[str, str]]:
    """Every line of the pages, with its place."""
    for file in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("plugins/*/README.md"))):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            yield f"{file.relative_to(ROOT)}:{number}", line


@pytest.mark.slow
def test_no_message_or_page_has_a_phrase_that_was_replaced() -> None:
    found = [
        f"{place}: {text.strip()[:80]!r}; write {instead}"
        for place, text in (*messages(), *pages())
        for pattern, instead in REPLACED.items()
        if re.search(pattern, text)
    ]
    assert found == []
