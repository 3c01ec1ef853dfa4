"""What hosted calls have found, noted where the model's text names it.

A tool's result says in `metadata.citations` what can be cited: `{url, title}`, or `{type: "file_citation", file_id,
filename}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from toolplug.providers.json_object import as_object

Annotation = Mapping[str, object]

MAX_ANNOTATIONS = 100
_SHORTEST_TITLE = 4


class Citations:
    """The sources of one response."""

    def __init__(self) -> None:
        self._sources: dict[tuple[object, object], Mapping[str, object]] = {}

    def add(self, metadata: Mapping[str, object]) -> None:
        """Take what a result offers; the first of a source holds."""
        given = metadata.get("citations")
        for entry in cast("list[object]", given) if isinstance(given, list) else ():
            source = as_object(entry)
            self._sources.setdefault((source.get("url"), source.get("file_id")), source)

    def found_in(self, text: str) -> list[Annotation]:
        """An annotation for each place where the text names a source, in the order of the text."""
        if not self._sources:
            return []
        found = [pair for source in self._sources.values() for pair in _annotations(source, text)]
        return [annotation for _, annotation in sorted(found, key=lambda pair: pair[0])[:MAX_ANNOTATIONS]]


def _annotations(source: Mapping[str, object], text: str) -> Iterator[tuple[int, Annotation]]:
    url, title = source.get("url"), source.get("title")
    if isinstance(url, str) and url:
        named = title if isinstance(title, str) else ""
        long_enough = len(named) >= _SHORTEST_TITLE
        sought = url if url in text or not long_enough else named
        for start in _places(sought, text):
            end = start + len(sought)
            note = {"type": "url_citation", "url": url, "title": named, "start_index": start, "end_index": end}
            yield start, note
        return
    file_id, filename = source.get("file_id"), source.get("filename")
    if isinstance(file_id, str) and isinstance(filename, str) and filename:
        for start in _places(filename, text):
            yield start, {"type": "file_citation", "file_id": file_id, "filename": filename, "index": start}


def _places(sought: str, text: str) -> Iterator[int]:
    start = text.find(sought)
    while start >= 0:
        yield start
        start = text.find(sought, start + len(sought))
