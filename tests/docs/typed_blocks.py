"""The Python of README and docs under pyright in strict mode: each block as it runs, in a folder for each page.

A block with a title is the file of that name, which other blocks of the page import. `make test` runs it: one process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.docs.fences import fences
from tests.requirement_table import ROOT

PAGES = ("README.md", "docs/**/*.md", "plugins/*/README.md")
ELSEWHERE = ("docs/how-to/use-with-langchain.md", "docs/how-to/use-with-llama-index.md")
"""Their frameworks are whole only in environments of their own: tests/clients/test_integrations.py runs them there."""
LOOPS = ROOT / "tests" / "integrations" / "sdk_loops.py"
"""What the pages show for one SDK, for each of them."""
SETTINGS = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "venvPath": str(Path(sys.prefix).parent),
    "venv": Path(sys.prefix).name,
    "reportMissingTypeStubs": False,
}


def write_blocks(pages: Iterable[Path], folder: Path) -> int:
    """Write the blocks of the pages into the folder, with the settings of pyright; return how many there are."""
    roots: list[dict[str, object]] = []
    written = 0
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        place = folder / name.removesuffix(".md").replace("/", "__").replace("-", "_")
        blocks = [block for block in fences(page.read_text("utf-8")) if block.language == "python"]
        for block in blocks:
            file = place / (block.title or f"line_{block.line}.py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, "utf-8")
        if blocks:
            sources = [path.relative_to(folder).as_posix() for path in place.rglob("src")]
            roots.append({"root": place.name, "extraPaths": sources})
            written += len(blocks)
    settings = {**SETTINGS, "executionEnvironments": roots}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    return written


def main() -> None:
    """Check every page, and exit as pyright does."""
    folder = ROOT / "build" / "typed-blocks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
    shutil.copy(LOOPS, folder)
    written = write_blocks([page for page in pages if page.relative_to(ROOT).as_posix() not in ELSEWHERE], folder)
    print(f"{written} blocks of {len(pages)} pages", flush=True)
    sys.exit(subprocess.run([Path(sys.prefix) / "bin" / "pyright", "--project", folder], check=False).returncode)


if __name__ == "__main__":
    main()
