"""An event loop whose clock can be put forward: what is due later is due now, and nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Jump = Callable[[float], None]
"""Put the clock forward by so many seconds."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """The loop of asyncio, with a clock of its own."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._ahead_s

    def jump(self, seconds: float) -> None:
        self._ahead_s += seconds


def on_jumping_loop(scenario: Callable[[Jump], Awaitable[None]]) -> None:
    """Run the scenario on such a loop."""
    loop = JumpingLoop()

    async def main() -> None:
        await scenario(loop.jump)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
