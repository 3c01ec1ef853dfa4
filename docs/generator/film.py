"""The second half of `make pictures`: the film of the front page, from `pip install` to the waterfall.

Everything in it happens: wheels of this checkout are installed into an environment of its own, the terminal shows what
the commands print there, and the pages are those of the host that they have started. Only waiting is cut.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from docs.generator.pictures import FOLDER, MAX_BYTES, ROOT, chromium, save_moving
from playwright.sync_api import Browser, Locator, Page, ViewportSize
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

SIZE: ViewportSize = {"width": 1280, "height": 980}
PORT = 8080
"""What the film shows; the host has a free one."""
SHOWN_FOLDER = "~/tools"
"""What the film shows; the files are in a temporary folder."""
RENAME = """([folder, shown]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, shown);
}"""
LONGEST_S = 120
TYPED_MS = 160
READ_MS = 1_800
LAST_MS = 5_000
TERMINAL = """<body style="margin: 0; background: #1d2126; color: #d8dbe0">
<pre style="margin: 32px; font: 16px/1.5 'DejaVu Sans Mono', monospace; white-space: pre-wrap">%s</pre>"""
NOTES = '''\
import asyncio

from toolplug import tool

NOTES = ["milk", "tea", "oat milk"]


@tool
async def find_notes(word: str) -> list[str]:
    """Return the notes that contain a word."""
    await asyncio.sleep(0.3)
    return [note for note in NOTES if word in note]


@tool
async def read_note(number: int) -> str:
    """Return one note by its number."""
    return NOTES[number]
'''
POINTER = """([x, y]) => {
  const ring = document.getElementById("film") ?? document.body.appendChild(document.createElement("div"));
  ring.id = "film";
  Object.assign(ring.style, {position: "fixed", left: `${x - 13}px`, top: `${y - 13}px`, width: "26px", height: "26px",
    borderRadius: "50%", background: "#e8590c66", border: "2px solid #e8590c", zIndex: 99, pointerEvents: "none"});
}"""
"""Shows where the next click goes, as a picture has no pointer."""
NO_POINTER = "() => document.getElementById('film')?.remove()"


class Film:
    """The frames so far, each with the milliseconds that it is shown; `folder` has the files of the film."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.frames: list[tuple[bytes, int]] = []

    def show(self, ms: int = READ_MS) -> None:
        """Take a frame."""
        self.page.evaluate(RENAME, [str(self.folder), SHOWN_FOLDER])
        self.frames.append((self.page.screenshot(animations="disabled"), ms))

    def click(self, target: Locator) -> None:
        """Click, and show before where."""
        box = target.bounding_box()
        if box is None:
            raise RuntimeError(f"{target} cannot be seen")
        self.page.evaluate(POINTER, [box["x"] + min(box["width"] / 2, 60), box["y"] + box["height"] / 2])
        self.show(700)
        self.page.evaluate(NO_POINTER)
        target.click()

    def write(self, target: Locator, text: str) -> None:
        """Write into a field, and show it."""
        target.fill(text)
        self.show(600)


class Terminal:
    """A terminal in the film: what was written on it."""

    def __init__(self, film: Film) -> None:
        self._film = film
        self._text = ""

    def type(self, command: str) -> None:
        """Type a command after the prompt, in a few steps."""
        before = f"{self._text}\x1b[32m$\x1b[0m "
        for end in range(0, len(command) + 8, 8):
            self._text = before + command[:end]
            self._show(TYPED_MS)
        self._text += "\n"

    def print(self, text: str) -> None:
        """Show what the command has printed."""
        self._text += text
        self._show(READ_MS)

    def _show(self, ms: int) -> None:
        screen = Console(record=True, file=StringIO(), width=200, force_terminal=True, color_system="truecolor")
        screen.print(Text.from_ansi(self._text), end="", soft_wrap=True)
        shown = screen.export_html(theme=DIMMED_MONOKAI, code_format="{code}", inline_styles=True)
        self._film.page.set_content(TERMINAL % (shown or escape(self._text)))
        self._film.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        self._film.show(ms)


def install(folder: Path) -> Path:
    """Install the wheels of this checkout into a new environment; return the folder of its commands."""
    wheels, made = folder / "wheels", folder / "environment"
    parts = [ROOT, ROOT / "plugins" / "toolplug-console"]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, *parts], check=True)
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    commands = made / "bin"
    pip = [commands / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--find-links", wheels, "toolplug[server]"], check=True)
    return commands


@contextmanager
def serving(commands: Path, folder: Path) -> Generator[tuple[str, str]]:
    """Serve the file at a terminal; yield the URL, and what the terminal shows once the host listens."""
    master, slave = pty.openpty()
    command = [commands / "toolplug", "serve", "notes.py", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TOOLPLUG_CONFIG")}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=slave, stderr=slave) as process:
        os.close(slave)
        try:
            shown = ""
            while not re.search(r"auth.* none.*\n", shown):
                if not select.select([master], [], [], LONGEST_S)[0]:
                    raise RuntimeError(f"the host does not listen:\n{shown}")
                shown += os.read(master, 65536).decode()
            yield re.findall(r"listening on (http://\S+)", shown)[0], shown.replace("\r", "")
        finally:
            process.terminate()
            process.wait(LONGEST_S)
            os.close(master)


def call(url: str, name: str, **arguments: object) -> None:
    """Call a tool of the host."""
    body = json.dumps({"name": name, "arguments": arguments}).encode()
    with urlopen(Request(f"{url}/v1/tool-calls", body, {"Content-Type": "application/json"})) as answer:
        answer.read()


def in_the_browser(film: Film, url: str) -> None:
    """Try both tools on their pages, and look at the calls in the waterfall."""
    page = film.page
    page.goto(url)
    page.get_by_text("notes.py").first.wait_for()
    film.show()
    film.click(page.get_by_role("link", name="Tools", exact=True))
    page.get_by_role("heading", name="find_notes").wait_for()
    film.show(900)
    film.write(page.get_by_label("word"), "milk")
    film.click(page.get_by_role("button", name="Call", exact=True))
    page.get_by_role("region", name="Result").get_by_text("oat milk").wait_for()
    film.show()
    film.click(page.get_by_role("option").filter(has_text="read_note"))
    film.write(page.get_by_label("number"), "7")
    film.click(page.get_by_role("button", name="Call", exact=True))
    page.get_by_text("raised IndexError at").wait_for()
    film.show(2_600)
    with ThreadPoolExecutor(2) as both:
        for word in ("tea", "milk"):
            both.submit(call, url, "find_notes", word=word)
    film.click(page.get_by_role("link", name="Waterfall", exact=True))
    page.locator(".lane").nth(3).wait_for()
    film.show()
    film.click(page.get_by_role("button", name="read_note"))
    page.get_by_role("region", name="Where it crashed").last.wait_for()
    film.show(LAST_MS)


def take_stills(browser: Browser, url: str, folder: Path) -> None:
    """Take the last page of the film, light and dark, for those who want no moving picture."""
    for scheme in ("light", "dark"):
        page = browser.new_context(viewport=SIZE, color_scheme=scheme).new_page()
        page.goto(f"{url}/console#/waterfall")
        page.locator(".lane").nth(3).wait_for()
        page.get_by_role("button", name="read_note").click()
        page.get_by_role("region", name="Where it crashed").last.wait_for()
        page.evaluate(RENAME, [str(folder), SHOWN_FOLDER])
        file = FOLDER / f"waterfall-{scheme}.png"
        page.screenshot(path=file, animations="disabled")
        if (size := file.stat().st_size) > MAX_BYTES:
            raise RuntimeError(f"{file} has {size} bytes, more than {MAX_BYTES}; make the page smaller")
        page.context.close()


def main() -> None:
    """Make the film."""
    with TemporaryDirectory(prefix="notes-") as name, chromium() as browser:
        folder = Path(name)
        (folder / "notes.py").write_text(NOTES)
        commands = install(folder)
        film = Film(browser.new_context(viewport=SIZE, color_scheme="light").new_page(), folder)
        terminal = Terminal(film)
        terminal.type('pip install --quiet "toolplug[server]"')
        terminal.type("cat notes.py")
        terminal.print(NOTES)
        terminal.type("toolplug serve notes.py")
        with serving(commands, folder) as (url, shown):
            terminal.print(shown.replace(url, f"http://127.0.0.1:{PORT}"))
            in_the_browser(film, url)
            take_stills(browser, url, folder)
        save_moving("first-minutes", film.frames)


if __name__ == "__main__":
    main()
