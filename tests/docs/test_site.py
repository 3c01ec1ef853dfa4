"""The site is built without a warning: every link leads somewhere, every page is in the menu, every name is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.requirement_table import ROOT


@pytest.mark.process
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
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
    assert "FunctionProvider" in (tmp_path / "site" / "reference" / "python" / "index.html").read_text("utf-8")


def test_the_first_page_leads_to_every_other() -> None:
    docs = ROOT / "docs"
    linked = re.findall(r"\]\(([a-z-]+/[a-z-]+\.md)\)", (docs / "index.md").read_text("utf-8"))
    assert set(linked) == {str(page.relative_to(docs)) for page in docs.glob("*/*.md")}
