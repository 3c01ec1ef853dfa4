"""A table that lends its operations to a model, as a data analysis application does.

Run it beside a host: `python examples/data_analysis_app.py http://127.0.0.1:8080`. It prints the code of its session,
under which a model's client finds its tools. `summarize` is among them while there are rows.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from statistics import mean

from pydantic import BaseModel

from toolplug import ToolError
from toolplug.client import Application, Capability, Environment


class Row(BaseModel):
    """One observation."""

    name: str
    value: float


class Table:
    """The application's own state; its methods know nothing of toolplug but how to say that something is wrong."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def describe(self) -> str:
        """Say what is in the table."""
        return f"a table of {len(self.rows)} rows"

    def search(self, text: str) -> list[Row]:
        """Find the rows whose name contains the text."""
        return [row for row in self.rows if text in row.name]

    def summarize(self, name: str | None = None) -> dict[str, float]:
        """Summarize the values of all rows, or of those with one name."""
        values = [row.value for row in self.rows if name in {None, row.name}]
        if not values:
            raise ToolError(f"no row is called {name!r}")
        return {"count": len(values), "mean": mean(values), "highest": max(values)}


def lending(table: Table, application: Application) -> Application:
    """The application, which lends what makes sense in the table's state."""

    def state_changed(reason: str) -> None:
        always = [add, clear, table.describe, table.search]
        application.replace([*always, table.summarize] if table.rows else always, reason=reason)

    async def add(rows: Sequence[Row]) -> int:
        """Add rows to the table and return how many there are."""
        table.rows.extend(rows)
        state_changed("rows were added")
        return len(table.rows)

    async def clear() -> None:
        """Remove all rows."""
        table.rows.clear()
        state_changed("the table was emptied")

    state_changed("the application started")
    return application


async def main(url: str) -> None:
    """Lend until interrupted, or until the session is over."""
    application = Application(
        url,
        plugin_type="codap",
        capabilities=[Capability(type="data_analysis", level="advanced"), Capability(type="storage")],
        environment=Environment(version="3.0", features=("tables",), limitations=("no charts",)),
    )
    async with lending(Table(), application):
        print(f"session {application.code}", flush=True)
        await application.serve()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
