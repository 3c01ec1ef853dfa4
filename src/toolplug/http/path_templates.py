"""Paths with parameters, found by what stands at their other places: the more there are, the less one costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class _Shape(NamedTuple):
    """How many segments a path has, and which of them are parameters."""

    length: int
    places: frozenset[int]

    def fixed(self, segments: Sequence[str]) -> tuple[str, ...]:
        """The segments at the other places."""
        return tuple(["" if at in self.places else segment for at, segment in enumerate(segments)])


class _Template(NamedTuple):
    path: str
    names: Mapping[int, str]


class PathTemplates:
    """Templates such as `/a/{b}/c`; where several match, the one whose shape was given first is found."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._shapes: dict[_Shape, dict[tuple[str, ...], _Template]] = {}
        for path in paths:
            segments = path.split("/")
            names = {at: segment[1:-1] for at, segment in enumerate(segments) if segment.startswith("{")}
            shape = _Shape(len(segments), frozenset(names))
            self._shapes.setdefault(shape, {})[shape.fixed(segments)] = _Template(path, names)

    def find(self, path: str) -> tuple[str, Mapping[str, str]] | None:
        """The template of this path, and the parameters in it, none of them empty; None where there is none."""
        segments = path.split("/")
        for shape, templates in self._shapes.items():
            if shape.length == len(segments):
                template = templates.get(shape.fixed(segments))
                if template is not None and all(segments[at] for at in shape.places):
                    return template.path, {name: segments[at] for at, name in template.names.items()}
        return None
