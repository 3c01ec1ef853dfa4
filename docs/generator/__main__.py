"""Write every page that is out of date, and name it."""

from __future__ import annotations

import logging
from pathlib import Path

from docs.generator.pages import PAGES

FOLDER = Path(__file__).parent.parent / "reference"


def main() -> None:
    """Render each page; a page that is as it should be is not touched."""
    logging.disable()  # a collector fails on purpose, to be counted
    for name, render in PAGES.items():
        file, text = FOLDER / name, render()
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(file)


if __name__ == "__main__":
    main()
