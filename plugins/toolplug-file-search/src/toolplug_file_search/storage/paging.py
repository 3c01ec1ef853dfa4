"""One page of a table, in the order in which its rows were made."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from toolplug_file_search.storage.records import Listed, Page, Record


class UnknownCursor(Exception):
    """`after` or `before` (the `parameter`) names nothing in this listing."""

    def __init__(self, parameter: str, value: str) -> None:
        self.parameter = parameter
        super().__init__(f"{parameter}: nothing in this list has the id {value!r}")


def list_page(
    connection: sqlite3.Connection,
    select: str,
    where: Sequence[object],
    page: Page,
    *,
    id_column: str,
    read: Callable[[Sequence[object]], Record],
) -> Listed[Record]:
    """Run a `SELECT … WHERE …` whose table has a column `place`. Raises `UnknownCursor`."""
    bounds, values = "", list(where)
    for parameter, cursor in (("after", page.after), ("before", page.before)):
        if cursor is None:
            continue
        place = connection.execute(f"SELECT place FROM ({select}) WHERE {id_column} = ?", [*where, cursor]).fetchone()
        if place is None:
            raise UnknownCursor(parameter, cursor)
        later = (parameter == "after") == (page.order == "asc")
        bounds += f" AND place {'>' if later else '<'} ?"
        values.append(place[0])
    backwards = page.before is not None and page.after is None
    ascending = (page.order == "asc") != backwards
    rows = connection.execute(
        f"SELECT * FROM ({select}) WHERE true{bounds} ORDER BY place {'ASC' if ascending else 'DESC'} LIMIT ?",
        [*values, page.limit + 1],
    ).fetchall()
    kept = rows[: page.limit]
    return Listed([read(row) for row in (reversed(kept) if backwards else kept)], more=len(rows) > page.limit)
