"""The command `toolplug`.

Exit codes: 0 success, 1 a problem found, 2 a wrong command line (docs/reference/commands.md).
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from toolplug.cli.process_exit import LastStep, bound_exit, end_at_signals

COLLECTED_AFTER = 10_000
"""New objects between two garbage collections: at Python's 700 a command spends 8 % of its time on them, as it imports.

`serve` sets thresholds of its own once it has started.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; without one that of the process, which then ends in time."""
    before = threading.enumerate()
    # Only for the command itself: a program or a test that passes arguments goes on afterwards.
    last_step = LastStep() if arguments is None else None
    if arguments is None:
        gc.set_threshold(COLLECTED_AFTER)
    if arguments is None and sys.argv[1:2] in (["serve"], ["dev"]):
        # The server sets its own handlers after the imports. A supervisor that stops it meanwhile is to see exit code
        # 0.
        end_at_signals()
    try:
        import_module("rich")  # without its modules, whose first use would be too late for this message
        command_line = import_module("toolplug.cli.command_line")
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        # Typer and Rich are an extra: a host that is opened from code needs neither.
        message = f"toolplug: the command line needs the package {error.name!r}; pip install 'toolplug[cli]'"
        print(message, file=sys.stderr)  # noqa: T201  without Typer there is no other output
        return 1
    code = command_line.run(sys.argv[1:] if arguments is None else arguments)
    if last_step is not None:
        last_step.code = code
        bound_exit(before, code)
    return code


if __name__ == "__main__":
    sys.exit(main())
