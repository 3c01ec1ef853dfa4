"""Progress of commands that take over a second: on stderr, only at a terminal, and not with `-q`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toolplug.cli.log_options import log_options


@contextmanager
def progress(what: str, total: int | None = None) -> Generator[Callable[[], None]]:
    """Show a bar for `total` steps within the block, and remove it at the end; call the function after each step.

    Without `total` the bar only moves while the block runs. Prints nothing where stderr is no terminal.
    """
    shown = sys.stderr.isatty() and not log_options().quiet and total != 0
    counted = () if total is None else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counted, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
