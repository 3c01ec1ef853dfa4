"""The site is built without a warning: links lead somewhere, pages are in the menu, each public class has a page."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import metadata
from pathlib import Path
from typing import Literal

import pytest
import yaml
from playwright.sync_api import sync_playwright
from tests.docs.needed import needs_of, told_in
from tests.node.installed import installed
from tests.requirement_table import ROOT

PLACE = "https://toolplug.example/source"
HOW_TOS = sorted(page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/how-to/*.md"))
WIDTHS = """() => [
  document.documentElement.scrollWidth - innerWidth,
  [...document.querySelectorAll("pre code")].map((code) => code.scrollWidth - code.clientWidth),
  [...document.querySelectorAll(".md-typeset table:not([class])")].map((table) => [...table.rows[0].cells])
    .filter((cells) => cells.length <= 4 && cells.at(-1).getBoundingClientRect().left > innerWidth - 80)
    .map((cells) => cells[0].textContent),
]"""
"""By how many pixels the page, and each of its blocks of code, is wider than what shows it.

Last, the tables of up to four columns whose last one begins out of sight.
"""

VIOLATIONS = """() => axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html).join(", ").slice(0, 300)}`))"""

PUBLIC = ("toolplug", "toolplug.http", "toolplug.apart", "toolplug.responses", "toolplug.client", "toolplug.testing")


READ = ("", "tutorial/first-provider", "how-to/console", "explanation/architecture", "pages", "reference/commands")
"""Pages with each kind of contents: text, links, code of several languages, output, tables, pictures."""


@pytest.mark.judge
@pytest.mark.long(60)
@pytest.mark.needs("chromium")
@pytest.mark.requirement("I33-docs-code-whole")
def test_the_site_is_built_without_a_warning_cuts_no_code_and_has_contrast(tmp_path: Path) -> None:
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    _check_classes(site)
    assert list(_cut(site)) == []
    assert list(_violations(site)) == []


def _check_classes(site: Path) -> None:
    """Check that each public class has a page."""
    pages = site / "reference" / "python"
    overview = (pages / "index.html").read_text("utf-8")
    for name in _public_classes():
        page = _page_of(name, pages)
        assert f'href="{page.name}/"' in overview, f"the overview does not link {page.name}"
        text = (page / "index.html").read_text("utf-8")
        assert f'id="{page.name}"' in text
        assert 'class="doc doc-contents' in text, f"{page.name} has no contents"


def _violations(site: Path) -> Iterator[str]:
    """What those who see little would miss, on pages of each kind, light and dark."""
    axe = (installed("axe") / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in schemes:
            window = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
            for name in READ:
                window.goto((site / name / "index.html").as_uri())
                window.evaluate(axe)
                yield from (f"{name}, {scheme}: {violation}" for violation in window.evaluate(VIOLATIONS))
        browser.close()


def _cut(site: Path) -> Iterator[str]:
    """The pages of text whose window cuts a block of code, or that are wider than it, in a screen and in a phone."""
    pages = [page for page in sorted(site.rglob("index.html")) if page.parent.parent.name != "python"]
    assert len(pages) > 80
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        window = browser.new_page()
        for page in pages:
            window.goto(page.as_uri(), wait_until="domcontentloaded")
            for width in (1440, 390):
                window.set_viewport_size({"width": width, "height": 900})
                window.wait_for_function("width => innerWidth === width", arg=width)
                wide, blocks, tables = window.evaluate(WIDTHS)
                cut = [each for each in blocks if each > 1]
                if wide > 0 or cut or tables:
                    yield f"{page.parent.relative_to(site)} at {width}: {wide}, {cut}, {tables}"
        browser.close()


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


@pytest.mark.requirement("I33-readme-links")
def test_the_readme_of_the_distribution_has_whole_addresses() -> None:
    """An index of packages shows the README alone, without the files beside it."""
    described = metadata("toolplug")
    text = described["Description"] or str(described.get_payload())
    assert described["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    source = f"{PLACE}/"
    named = [link.removeprefix(source).partition("#")[0] for link in links if link.startswith(source)]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.requirement("I33-install-lines")
@pytest.mark.parametrize("page", HOW_TOS)
def test_a_page_that_needs_more_than_toolplug_says_what_to_install(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert needs_of(text) - told_in(text) == set()


def test_the_page_of_all_pages_lists_each_once_in_the_groups_and_order_of_the_menu() -> None:
    docs = ROOT / "docs"
    expected = "# All pages"
    for group in yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]:
        for name, pages in group.items():
            if name == "Home":
                continue
            expected += f"\n\n## {name}\n"
            for page in pages:
                if page != "pages.md":
                    title = re.search(r"^# (.+)$", (docs / page).read_text("utf-8"), re.MULTILINE)
                    assert title is not None
                    expected += f"\n- [{title[1]}]({page})"
    text = (docs / "pages.md").read_text("utf-8")
    assert re.sub(r"\n*</?div[^>]*>", "", text.partition("---\n# ")[2]) == expected.removeprefix("# ") + "\n"
    assert set(re.findall(r"\(([a-z-]+/[a-z-]+\.md)\)", text)) == {
        str(page.relative_to(docs)) for page in docs.glob("*/*.md")
    }


def test_the_front_page_has_pictures_for_light_and_dark_that_are_small() -> None:
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    named = re.findall(r"\((assets/[\w-]+)-(light|dark)\.png#only-(light|dark)\)", page)
    assert named == [
        (f"assets/{name}", scheme, scheme)
        for name in ("data-table", "quarantine", "waterfall", "console")
        for scheme in ("light", "dark")
    ]
    moving_names = re.findall(r"\((assets/[\w-]+\.webp)\)", page)
    assert moving_names == ["assets/data-table.webp", "assets/first-minutes.webp"]
    for name in moving_names:
        moving = (ROOT / "docs" / name).read_bytes()
        assert moving[8:12] == b"WEBP"
        assert b"ANIM" in moving[:64], "it moves"
        assert len(moving) < 400 * 1024
    for name, scheme, _ in named:
        picture = ROOT / "docs" / f"{name}-{scheme}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 150 * 1024
