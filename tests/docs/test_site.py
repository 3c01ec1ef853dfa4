"""The site is built without a warning: links lead somewhere, pages are in the menu, each public class has a page."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.requirement_table import ROOT

PUBLIC = ("toolplug", "toolplug.http", "toolplug.responses", "toolplug.client", "toolplug.testing")


@pytest.mark.judge
def test_the_site_is_built_without_a_warning_and_has_a_page_of_each_public_class(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = tmp_path / "site" / "reference" / "python"
    overview = (pages / "index.html").read_text("utf-8")
    for name in _public_classes():
        page = _page_of(name, pages)
        assert f'href="{page.name}/"' in overview, f"the overview does not link {page.name}"
        text = (page / "index.html").read_text("utf-8")
        assert f'id="{page.name}"' in text
        assert 'class="doc doc-contents' in text, f"{page.name} has no contents"


def _page_of(name: str, pages: Path) -> Path:
    """The class's page, which is under the first module that offers it."""
    own = [page for page in pages.glob(f"toolplug*.{name.rpartition('.')[2]}") if _named(page.name) is _named(name)]
    assert len(own) == 1, f"{name} has {len(own)} pages"
    return own[0]


def _public_classes() -> Iterator[str]:
    for module in map(import_module, PUBLIC):
        yield from (f"{module.__name__}.{name}" for name in module.__all__ if inspect.isclass(getattr(module, name)))
    errors = import_module("toolplug.errors")
    yield from (f"toolplug.errors.{name}" for name, value in vars(errors).items() if _is_error(value))


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception) and value.__module__ == "toolplug.errors"


def _named(full: str) -> object:
    module, _, name = full.rpartition(".")
    return getattr(import_module(module), name)


def test_the_first_page_leads_to_every_other() -> None:
    docs = ROOT / "docs"
    linked = re.findall(r"\]\(([a-z-]+/[a-z-]+\.md)\)", (docs / "index.md").read_text("utf-8"))
    assert set(linked) == {str(page.relative_to(docs)) for page in docs.glob("*/*.md")}


def test_the_front_page_has_pictures_for_light_and_dark_that_are_small() -> None:
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    named = re.findall(r"\((assets/[\w-]+)-(light|dark)\.png#only-(light|dark)\)", page)
    assert named == [
        (f"assets/{name}", scheme, scheme) for name in ("data-table", "console") for scheme in ("light", "dark")
    ]
    for name, scheme, _ in named:
        picture = ROOT / "docs" / f"{name}-{scheme}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 150 * 1024
