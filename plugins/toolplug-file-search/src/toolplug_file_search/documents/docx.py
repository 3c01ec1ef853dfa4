"""The text of Word documents as Markdown: headings, lists, tables, notes, comments, diagrams, headers and footers.

Read by hand from the XML with lxml: mammoth and its like end at the first reference that leads nowhere (12 of 30
damaged documents), and leave out fields, ruby, direction marks, equations, headers and footers without a word.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from posixpath import normpath
from typing import Any

from toolplug_file_search.documents.decoding import decode
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.html import read_html

MAX_UNPACKED = 100 * 1024 * 1024
"""Bytes that the parts of a docx with text have at most together, unpacked."""
_MAIN = "word/document.xml"
_SKIPPED = frozenset(
    {"del", "delText", "moveFrom", "instrText", "Fallback", "pPr", "rPr", "sectPr", "sdtPr", "tblPr", "trPr", "tcPr"}
)
"""Elements without text of the document: deleted text, codes of fields, a second form of the same, properties."""
_PARTS_WITH_TEXT = ("footnotes", "endnotes", "comments.", "diagrams/data", "charts/chart")
"""The beginnings of parts with text of their own, in the order in which it follows."""
_CHARACTERS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}
_LEVELS = 6


class Parts:
    """The parts of a document by name; what is damaged is in `left_out`."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raise `UnreadableDocument` where the archive cannot be read."""
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as docx: {error}") from None
        self._name = name
        self._infos = {info.filename.replace("\\", "/").lstrip("/"): info for info in self._archive.infolist()}
        self._unpacked = 0
        self.left_out: list[str] = []

    def names(self, beginning: str) -> list[str]:
        """Return the names of the XML parts that begin so."""
        return sorted(name for name in self._infos if name.startswith(beginning) and name.endswith(".xml"))

    def read(self, part: str) -> bytes:
        """Return a part as far as it can be read, empty for none. Raises `UnreadableDocument` when all are too large.

        The size is checked while it is unpacked: what an archive says of its parts need not be true.
        """
        info = self._infos.get(part)
        if info is None:
            return b""
        pieces: list[bytes] = []
        try:
            with self._archive.open(info) as opened:
                while piece := opened.read(1024 * 1024):
                    pieces.append(piece)
                    self._unpacked += len(piece)
                    if self._unpacked > MAX_UNPACKED:
                        message = f"{self._name!r} has more than {MAX_UNPACKED} bytes unpacked"
                        raise UnreadableDocument("file_too_large", message)
        except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error):
            self.left_out.append(f"the damaged end of its part {part}")
        return b"".join(pieces)

    def parse(self, part: str) -> Any:
        """Return the root of a part, None for one without XML; entities are not expanded, nothing is fetched."""
        etree: Any = import_module("lxml.etree")
        parser = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, huge_tree=True)
        try:
            return etree.fromstring(self.read(part), parser)
        except (etree.XMLSyntaxError, ValueError):
            return None


def read_docx(name: str, content: bytes) -> tuple[str, list[str]]:
    """Return the text of a document, and what of it could not be read. Raises `UnreadableDocument`."""
    parts = Parts(name, content)
    main = next(iter(parts.names("word/document")), _MAIN)
    root = parts.parse(main)
    if root is None or _tag(root) != "document":
        raise UnreadableDocument("damaged_file", f"{name!r} cannot be read as docx: it has no part {_MAIN}")
    levels = _heading_levels(parts)
    embedded = _embedded_text(parts, main)
    texts = [_Body(levels, embedded).text(root)]
    for kind in _PARTS_WITH_TEXT:
        texts += [_part_text(parts, part, levels) for part in parts.names(f"word/{kind}")]
    headers = dict.fromkeys(_part_text(parts, part, levels) for part in parts.names("word/header"))
    footers = dict.fromkeys(_part_text(parts, part, levels) for part in parts.names("word/footer"))
    return "\n\n".join(filter(None, [*headers, *texts, *footers])), parts.left_out


def _part_text(parts: Parts, part: str, levels: Mapping[str, int]) -> str:
    root = parts.parse(part) if part in parts.names("word/") else None
    return "" if root is None else _Body(levels, lambda _: "").text(root)


def _tag(element: Any) -> str:
    """The name of an element without its namespace: the two editions of the format differ in that alone."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _value(element: Any, name: str = "val") -> str:
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _child(element: Any, *path: str) -> Any:
    """The descendant on a path of names, None for none."""
    for name in path:
        element = next((child for child in element if _tag(child) == name), None)
        if element is None:
            return None
    return element


def _heading_levels(parts: Parts) -> dict[str, int]:
    """The level of each style that is a heading's."""
    levels: dict[str, int] = {}
    root = parts.parse("word/styles.xml")
    for style in () if root is None else root:
        if _tag(style) != "style" or not (style_id := _value(style, "styleId")):
            continue
        named, outline = _child(style, "name"), _child(style, "pPr", "outlineLvl")
        name = "" if named is None else _value(named).lower()
        digits = name.removeprefix("heading ") if outline is None else str(int(_number(_value(outline))) + 1)
        if name == "title":
            levels[style_id] = 1
        elif digits.isdecimal() and 1 <= int(digits[:2]) <= _LEVELS:
            levels[style_id] = int(digits[:2])
    return levels


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 4 else 99


def _embedded_text(parts: Parts, main: str) -> Callable[[str], str]:
    """Returns a function that gives the text of an embedded part (`altChunk`) by its relation."""
    folder, _, base = main.rpartition("/")
    root = parts.parse(f"{folder}/_rels/{base}.rels")
    targets = {_value(relation, "Id"): _value(relation, "Target") for relation in (() if root is None else root)}

    def text_of(relation: str) -> str:
        target = targets.get(relation, "")
        path = target.lstrip("/") if target.startswith("/") else normpath(f"{folder}/{target}")
        content = parts.read(path)
        if content and path.endswith((".html", ".htm", ".xhtml", ".txt")):
            text = decode(path, content).text
            return text if path.endswith(".txt") else read_html(text)
        parts.left_out.append(f"the embedded document {target or relation!r}")
        return ""

    return text_of


class _Body:
    """Collects the blocks of one part, in one walk without recursion."""

    def __init__(self, levels: Mapping[str, int], embedded: Callable[[str], str]) -> None:
        self._levels = levels
        self._embedded = embedded
        self._blocks: list[list[str]] = [[]]
        """Of the part, and of each table cell that is open."""
        self._paragraphs: list[list[str]] = []
        """The pieces of each paragraph that is open: text boxes nest them."""
        self._readings: list[str] = []
        self._in_reading = False
        """In ruby: how its base is read, which follows the paragraph so that its words stay whole."""
        self._rows: list[list[list[str]]] = []
        """The rows of each table that is open."""

    def text(self, root: Any) -> str:
        """Return the text of a part."""
        walk: Any = import_module("lxml.etree").iterwalk(root, events=("start", "end"))
        for event, element in walk:
            tag = _tag(element)
            if event == "end":
                self._end(tag, element)
            elif tag in _SKIPPED or (tag in ("footnote", "endnote") and "eparator" in _value(element, "type")):
                walk.skip_subtree()
            else:
                self._start(tag, element)
        return "\n\n".join(self._blocks[0])

    def _start(self, tag: str, element: Any) -> None:
        if tag == "p":
            self._paragraphs.append([_prefix(element, self._levels)])
        elif tag == "tbl":
            self._rows.append([])
        elif tag == "tr" and self._rows:
            self._rows[-1].append([])
        elif tag == "tc":
            self._blocks.append([])
        elif tag == "rt":
            self._in_reading = True
        elif tag == "altChunk":
            self._add_block(self._embedded(_value(element, "id")))

    def _end(self, tag: str, element: Any) -> None:
        if tag == "t":
            self._add_text(element.text or "")
        elif tag == "rt":
            self._in_reading = False
        elif tag in _CHARACTERS and self._paragraphs:
            self._paragraphs[-1].append(_CHARACTERS[tag])
        elif tag == "p" and self._paragraphs:
            readings, self._readings = "".join(f" ({each})" for each in self._readings), []
            text = "".join([*self._paragraphs.pop(), readings])
            self._add_block(text if text.strip("# -") else "")
        elif tag == "tc" and len(self._blocks) > 1:
            cell = " ".join(self._blocks.pop()).replace("\n", " ")
            if self._rows and self._rows[-1]:
                self._rows[-1][-1].append(cell)
            else:
                self._add_block(cell)
        elif tag == "tbl" and self._rows:
            self._add_block("\n".join(_table(self._rows.pop())))

    def _add_text(self, text: str) -> None:
        if self._in_reading:
            self._readings.append(text)
        elif self._paragraphs:
            self._paragraphs[-1].append(text)
        else:
            self._add_block(text)

    def _add_block(self, text: str) -> None:
        if text.strip():
            self._blocks[-1].append(text.strip("\n"))


def _prefix(paragraph: Any, levels: Mapping[str, int]) -> str:
    """The mark of a heading or of an item of a list."""
    style, outline = _child(paragraph, "pPr", "pStyle"), _child(paragraph, "pPr", "outlineLvl")
    level = 0 if style is None else levels.get(_value(style), 0)
    if outline is not None:
        level = _number(_value(outline)) + 1
    if 1 <= level <= _LEVELS:
        return f"{'#' * level} "
    item = _child(paragraph, "pPr", "numPr")
    if item is None:
        return ""
    depth = _child(item, "ilvl")
    return f"{'  ' * min(_number(_value(depth)) if depth is not None else 0, _LEVELS)}- "


def _table(rows: list[list[str]]) -> Iterator[str]:
    for place, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if place == 0:
            yield f"| {' | '.join(['---'] * len(row))} |"
