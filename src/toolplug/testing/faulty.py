"""A provider that fails in every way that a host must survive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel

from toolplug.catalog.call import CallContext, ToolCall
from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import ToolError
from toolplug.execution.executor import ToolExecutor
from toolplug.providers.authoring import tool
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.site import ProviderContext

Step = Literal["constructor", "start", "tools", "routes", "collectors", "aclose"]


class ToolCrash(Exception):
    """Raised by a faulty tool; its text must not reach a model."""


class Leave(BaseException):
    """An exception that `except Exception` does not catch."""


class FaultyProvider(FunctionProvider):
    """A provider whose tools fail as their names say; the setting `fails` makes one step raise, `hangs` makes it wait.

    `release` ends the tools that wait. `reached` counts calls of `works`, `closed` calls of `aclose`.

    ```python
    import asyncio

    from toolplug import FunctionRegistry
    from toolplug.testing import FaultyProvider

    async def main():
        async with FunctionRegistry([FaultyProvider()]) as registry:
            result = await registry.call("raises")
            assert result.status == "panic" and "hunter2" not in result.output

    asyncio.run(main())
    ```
    """

    class Config(BaseModel):
        """The step that raises, and the step that never returns, if any."""

        fails: Step | None = None
        hangs: Step | None = None

    config: Config

    def __init__(self) -> None:
        self.release: threading.Event = threading.Event()
        self.reached: int = 0
        self.closed: int = 0
        self.executor: ToolExecutor | None = None
        self._fail("constructor")

    async def start(self, site: ProviderContext) -> None:
        """Start, raise, or never return."""
        self._fail("start")
        await self._hang("start")

    def tools(self) -> list[ToolDefinition]:
        """List the tools, or raise."""
        self._fail("tools")
        return list(super().tools())

    def routes(self) -> tuple[()]:
        """Return no routes, or raise."""
        self._fail("routes")
        return ()

    def collectors(self) -> tuple[()]:
        """Return no collectors, or raise."""
        self._fail("collectors")
        return ()

    async def aclose(self) -> None:
        """Close, raise, or never return."""
        self.closed += 1
        # Ends the tools that wait, or their threads would outlive the test.
        self.release.set()
        self._fail("aclose")
        await self._hang("aclose")

    @tool
    async def works(self) -> str:
        """Answer at once."""
        self.reached += 1
        return "fine"

    @tool
    async def raises(self) -> str:
        """Raise an exception that holds a secret."""
        raise ToolCrash("hunter2")

    @tool
    async def refuses(self) -> str:
        """Say to the model that it did not work."""
        raise ToolError("not today")

    @tool
    async def exits(self) -> str:
        """Ask the interpreter to end."""
        raise SystemExit(3)

    @tool
    async def interrupts(self) -> str:
        """Raise what a Ctrl-C raises."""
        raise KeyboardInterrupt

    @tool
    async def leaves(self) -> str:
        """Raise what `except Exception` does not catch."""
        raise Leave("hunter2")

    @tool
    async def cancels_itself(self) -> str:
        """Raise its own cancellation."""
        raise asyncio.CancelledError

    @tool(timeout=0.05)
    async def hangs(self) -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return "never"

    @tool(timeout=0.05)
    async def swallows_cancellation(self) -> str:
        """Never answer, and go on when it is cancelled."""
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "late"

    @tool(timeout=0.05)
    def blocks_its_thread(self) -> str:
        """Block the thread that it runs in until it is released."""
        self.release.wait()
        return "late"

    @tool
    async def returns_none(self) -> None:
        """Return nothing."""

    @tool
    async def returns_bytes(self) -> object:
        """Return bytes."""
        return b"\x00\xff"

    @tool
    async def returns_generator(self) -> object:
        """Return a generator."""

        def numbers() -> Iterator[int]:
            yield 1

        return numbers()

    @tool
    async def returns_nan(self) -> object:
        """Return a number that is none."""
        return {"value": [float("nan")]}

    @tool
    async def returns_cycle(self) -> object:
        """Return a list that holds itself."""
        cycle: list[object] = []
        cycle.append(cycle)
        return cycle

    @tool
    async def returns_30_mb(self) -> str:
        """Return thirty megabytes."""
        return "x" * 30_000_000

    @tool
    async def mutates(self, items: list[str]) -> int:
        """Change the arguments that it was given."""
        items.append("mine")
        return len(items)

    @tool
    async def calls_again(self, context: CallContext) -> str:
        """Call itself through the executor, without end."""
        if self.executor is None:
            raise LookupError("no executor was set")
        result = await self.executor.execute(ToolCall("inner", "calls_again"), context)
        return result.output

    def _fail(self, step: Step) -> None:
        if self.config.fails == step:
            raise ToolCrash(f"{step} went wrong")

    async def _hang(self, step: Step) -> None:
        if self.config.hangs == step:
            await asyncio.Event().wait()
