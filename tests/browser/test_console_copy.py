"""The copy button of the documentation: of a console block it copies the commands, and neither prompts nor output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.async_api import Browser, expect
from tests.browser.conftest import static_server
from tests.browser.late_pages import new_profile
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.needs("chromium")]

PAGE = """# Copying

```console
$ export KEY=one
$ toolplug serve \\
    --host 127.0.0.1
…
toolplug listening on http://127.0.0.1:8080
$ curl -s localhost:8080/readyz
{"status":"ready"}
```

```python
print("$ whole")
```
"""
SETTINGS = ("theme", "markdown_extensions", "extra_javascript")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site of one page, with the script and the settings of the button that the documentation has."""
    folder: Path = tmp_path_factory.mktemp("copying")
    (folder / "docs" / "assets").mkdir(parents=True)
    (folder / "docs" / "index.md").write_text(PAGE, "utf-8")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    (folder / "mkdocs.yml").write_text(
        yaml.safe_dump({"site_name": "copying", "plugins": [], **{name: settings[name] for name in SETTINGS}}), "utf-8"
    )
    shutil.copy(ROOT / "docs" / "assets" / "site.js", folder / "docs" / "assets")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    subprocess.run(command, cwd=folder, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=60, check=True)
    with static_server(folder / "site") as origin:
        yield origin


@pytest.mark.parametrize(
    ("language", "copied"),
    [
        pytest.param(
            "console",
            "export KEY=one\ntoolplug serve \\\n    --host 127.0.0.1\ncurl -s localhost:8080/readyz\n",
            id="console block: its commands",
        ),
        pytest.param("python", 'print("$ whole")\n', id="other block: all of it"),
    ],
)
async def test_the_copy_button_copies(chromium: Browser, site: str, language: str, copied: str) -> None:
    context = await new_profile(chromium)
    await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
    page = await context.new_page()
    await page.goto(site)
    block = page.locator(f".language-{language}")
    await block.hover()
    await block.locator("button").first.click()
    await page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    assert (await page.evaluate("navigator.clipboard.readText()")).strip() == copied.strip()
    await expect(page.get_by_text("Copied to clipboard")).to_be_visible()
    await context.close()
