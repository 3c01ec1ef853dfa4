"""The event loop of one command, which ends whatever the tools that ran in it do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

GRACE_S = 1.0
"""How long tasks that are left may take to end once they are cancelled."""


def run_to_end(
    main: Coroutine[Any, Any, int], *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> int:
    """Run the command's coroutine and return its exit code.

    A tool that was abandoned and will not go keeps nobody waiting: the process then ends at once, with that code.
    (`asyncio.run` would wait for it without end.)
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    code: int | None = None
    try:
        code = runner.run(main)
        return code
    finally:
        if runner.get_loop().run_until_complete(_settled()):
            runner.close()
        elif code is not None:
            leave_now(code)


def leave_now(code: int) -> None:
    """End the process without waiting for anything but what has been written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _settled() -> bool:
    """Cancel what is left; has it ended within its grace."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if not left:
        return True
    _, pending = await asyncio.wait(left, timeout=GRACE_S)
    return not pending
