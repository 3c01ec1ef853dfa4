"""The tools of one session as a value: replaced as a whole, changed as a whole, and compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import orjson

from toolplug.sessions.session_tool import SessionTool


class Difference(NamedTuple):
    """What came, went and changed from one set to the next, in its order."""

    added: tuple[SessionTool, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[SessionTool, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.modified)

    def wire(self) -> bytes:
        """The `updates` of an event or of an answer."""
        names = orjson.dumps(list(self.removed))
        return b'{"added":%s,"removed":%s,"modified":%s}' % (listed(self.added), names, listed(self.modified))


@dataclass(frozen=True, slots=True)
class ToolSet:
    """An ordered set of tools by name."""

    tools: Mapping[str, SessionTool] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def size(self) -> int:
        """Bytes of all definitions together."""
        return sum(len(tool.wire) for tool in self.tools.values())

    def changed(self, added: Iterable[SessionTool], removed: Iterable[str], modified: Iterable[SessionTool]) -> ToolSet:
        """The set after an update: what is modified keeps its place, what is added comes last."""
        tools = dict(self.tools)
        for name in removed:
            del tools[name]
        for tool in (*modified, *added):
            tools[tool.name] = tool
        return ToolSet(tools)

    def difference(self, newer: ToolSet) -> Difference:
        """What a reader of this set must hear about the newer one."""
        old, new = self.tools, newer.tools
        return Difference(
            added=tuple(tool for name, tool in new.items() if name not in old),
            removed=tuple(name for name in old if name not in new),
            modified=tuple(
                tool
                for name, tool in new.items()
                if name in old and old[name] is not tool and old[name].wire != tool.wire
            ),
        )

    def wire(self) -> bytes:
        """The definitions as a JSON array."""
        return listed(tuple(self.tools.values()))


def tool_set(tools: Iterable[SessionTool]) -> ToolSet:
    """The set of these tools; their names differ."""
    return ToolSet({tool.name: tool for tool in tools})


def listed(tools: Sequence[SessionTool]) -> bytes:
    """Definitions as a JSON array."""
    return b"[%s]" % b",".join([tool.wire for tool in tools])
