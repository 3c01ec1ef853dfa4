"""`--few-examples`, for `make coverage`: a sample that reaches the branches which all examples reach.

Counting branches makes a test more than twice as slow, and `make test` runs all of them without it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module

import pytest

EXAMPLES = 5
"""So many of a property, of the usual hundred: twenty reach one branch of a hundred more."""
VARIANTS = 2
"""So many, at most, of a test with parameters: most of the tests are further ones, and reach next to nothing new."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps variants at equal distances, so that those of each group of parameters are among them."""
    if not config.option.few_examples:
        return
    kept = set(sample([item.nodeid for item in items]))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Saves the branches that were reached: a worker that takes long to end is killed, and they would be lost."""
    if "coverage" in sys.modules:
        counting = import_module("coverage").Coverage.current()
        if counting is not None:
            counting.save()


def sample(names: list[str]) -> list[str]:
    """Return the names of tests without those of most variants, by test."""
    variants: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        variants[name.partition("[")[0]].append(name)
    return [name for group in variants.values() for name in group[:: -(-len(group) // VARIANTS)]]
