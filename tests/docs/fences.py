"""The fenced blocks of a Markdown page.

A block whose info line has `title="path"` is a file of that path. Any other is Python that runs as it stands, a whole
`providers.yaml`, or a console session: commands after `$ `, each with what it prints, where the page shows that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]+)"')
_PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Fence:
    """One block. `line` is that of its first fence, from 1; `title` the file that it is, or empty."""

    line: int
    language: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block. `shown`: what the page says that it prints, or None where it shows nothing."""

    text: str
    shown: str | None


def fences(page: str) -> Iterator[Fence]:
    """The blocks in their order."""
    for found in _FENCE.finditer(page):
        info = found["info"]
        title = _TITLE.search(info)
        line = page.count("\n", 0, found.start()) + 1
        yield Fence(line, info.partition(" ")[0], title[1] if title else "", found["text"])


def commands(block: Fence) -> Iterator[Command]:
    """The commands of a console block; one that ends with a backslash goes on in the next line."""
    lines = block.text.splitlines()
    while lines:
        first = lines.pop(0)
        if not first.startswith(_PROMPT):
            raise ValueError(f"line {block.line}: a console block begins with '$ ', not with {first!r}")
        text = first.removeprefix(_PROMPT)
        while text.endswith("\\"):
            text += "\n" + lines.pop(0)
        shown: list[str] = []
        while lines and not lines[0].startswith(_PROMPT):
            shown.append(lines.pop(0))
        yield Command(text, "\n".join(shown).strip("\n") if shown else None)


def matches(shown: str, printed: str) -> bool:
    """Is this what was printed: `…` stands for any text of a line, and on a line of its own for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.rstrip().split("…"))) + r"\n"
        for line in shown.splitlines()
    )
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is not None
