"""The text of HTML pages as people write and minify them: end tags may be missing, and nesting has no bound."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib import import_module
from typing import Any

from toolplug_file_search.documents.budget import OutOfTime, at_most

MAX_DEPTH = 150
"""Levels of elements up to which a page becomes Markdown, which takes three frames a level; a deeper one plain text."""
MARKDOWN_S = 20.0
_SILENT = ("script", "style", "noscript", "template", "svg", "nav")
_INLINE = frozenset(
    (
        *("a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "ins"),
        *("kbd", "label", "mark", "q", "rb", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong"),
        *("sub", "sup", "time", "tt", "u", "var", "wbr"),
    )
)


def read_html(page: str) -> str:
    """Return a page as Markdown, so that its headings are found; without scripts, styles and navigation.

    Of an image its text is left. A page that is nested too deeply for that, or takes too long, becomes plain text.
    """
    lxml: Any = import_module("lxml.html")
    try:
        with at_most(MARKDOWN_S):
            parser = lxml.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
            root = lxml.document_fromstring(page.encode("utf-8", "replace"), parser=parser)
            if _depth(root) <= MAX_DEPTH:
                return _markdown(str(lxml.tostring(root, encoding="unicode")))
    except (RecursionError, OutOfTime, import_module("lxml.etree").ParserError):
        pass
    plain = _PlainText()
    plain.feed(page)
    plain.close()
    return "".join(plain.pieces).strip()


def _depth(root: Any) -> int:
    deepest = depth = 0
    for event, _ in import_module("lxml.etree").iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        deepest = max(deepest, depth)
    return deepest


def _markdown(page: str) -> str:
    """Well-formed HTML as Markdown."""
    soup: Any = import_module("bs4").BeautifulSoup(page, "html.parser")
    converter: Any = import_module("markdownify").MarkdownConverter(
        heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False, bullets="-"
    )
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for part in soup([*_SILENT, "title"]):
        part.decompose()
    for image in soup("img", alt=True):
        image.replace_with(f" {image['alt']} ")
    text = str(converter.convert_soup(soup)).strip()
    return text if not title or title in text else f"# {title}\n\n{text}"


class _PlainText(HTMLParser):
    """Collects the text of a page, each block in a paragraph of its own, whatever its nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._silent = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._silent and tag in _SILENT:
            self._silent = tag
        self._depth += tag == self._silent
        self._break(tag)
        if tag == "img":
            self.handle_data(f" {dict(attrs).get('alt') or ''} ")

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == self._silent
        if self._depth == 0:
            self._silent = ""
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(data)

    def _break(self, tag: str) -> None:
        if tag not in _INLINE and self.pieces[-1:] != ["\n\n"]:
            self.pieces.append("\n\n")
