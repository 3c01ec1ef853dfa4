"""The provider: its tool, its routes, and what it opens and closes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated

from prometheus_client import Counter, Gauge
from prometheus_client.registry import Collector
from pydantic import Field
from starlette.routing import Route

from toolplug import (
    CallContext,
    FunctionProvider,
    ProviderContext,
    ToolDefinition,
    ToolError,
    ToolResult,
    ToolUnavailable,
    tool,
)
from toolplug_code_interpreter.api.routes import ContainerRoutes
from toolplug_code_interpreter.container import ContainerEnded
from toolplug_code_interpreter.containers import ContainerEntry, Containers, NoSuchContainer, TooManyContainers
from toolplug_code_interpreter.results import ITEM, images, result
from toolplug_code_interpreter.sandbox.bubblewrap import launcher
from toolplug_code_interpreter.sandbox.interpreter import Unavailable
from toolplug_code_interpreter.settings import Settings
from toolplug_code_interpreter.stub import StubOptions, named_container

MAX_CODE = 500_000

_RETRY_S = 5.0
_AROUND_S = 10.0
"""What the start of a container and reading its files may take of a call, in addition to the code."""
_MARGIN_S = 2.0


_MEASURED = "the memory of a container's processes together is measured, not limited by the kernel (see its README)"


class CodeInterpreter(FunctionProvider):
    """Runs Python in containers that reach neither the network nor the host."""

    Config = Settings
    config: Settings
    _containers: Containers | None = None

    async def start(self, site: ProviderContext) -> None:
        """Start a container to see that it works; where it does not, calls and `toolplug doctor` say why."""
        self._runs = Counter(
            "code_interpreter_runs",
            "Runs of code by how they ended: completed, raised, stopped at a limit, or the container ended.",
            ["outcome"],
            registry=None,
        )
        self._running = Gauge("code_interpreter_containers", "Containers that are running.", registry=None)
        self._site = site
        self._opening = asyncio.Lock()
        try:
            await self._open()
        except Unavailable as error:
            self.log.warning("no code can be run: %s", error)

    async def diagnose(self) -> Sequence[str]:
        """Return why no container can be started, or why the kernel does not limit its memory, if so."""
        try:
            containers = await self._open()
            await containers.check()
        except Unavailable as error:
            return [f"no code can be run: {error}"]
        why = containers.no_cgroups
        return [] if why is None else [f"{_MEASURED}: {why}"]

    async def aclose(self) -> None:
        """End all containers."""
        if self._containers is not None:
            await self._containers.aclose()

    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tool, with time for a container in addition to that of the code."""
        return [replace(each, timeout_s=self.config.time + _AROUND_S) for each in super().tools()]

    def collectors(self) -> Sequence[Collector]:
        return (self._runs, self._running)

    def routes(self) -> Sequence[Route]:
        return ContainerRoutes(self._open).routes()

    @tool(stub="code_interpreter", stub_options=StubOptions, item=ITEM)
    async def code_interpreter(
        self, code: Annotated[str, Field(min_length=1, max_length=MAX_CODE)], context: CallContext
    ) -> ToolResult:
        """Run Python and return what it prints, the value of its last expression, the figures that it shows and the
        files that it writes into its working directory.

        It has no network. In one container, names and files stay from call to call.

        Args:
            code: the Python to run
        """
        try:
            containers = await self._open()
            named = named_container(context.options)
            me = context.principal
            entry = (
                await containers.share(
                    me, context.session or context.conversation or context.request_id, _scope_of(context)
                )
                if named is None
                else containers.find(me, named)
            )
        except NoSuchContainer as error:
            raise ToolError(str(error)) from None
        except TooManyContainers as error:
            raise ToolError(str(error), retry_after_s=_RETRY_S) from None
        except Unavailable as error:
            raise ToolUnavailable(str(error), code="container_unavailable") from None
        try:
            return await self._run(entry, code, self._seconds(context))
        except ContainerEnded as error:
            self._runs.labels("ended").inc()
            raise ToolError(
                f"the container has ended with all its files and names: {error}", metadata={"container_id": entry.id}
            ) from None
        finally:
            containers.touch(entry)
            await containers.drop_ended(entry)

    async def _run(self, entry: ContainerEntry, code: str, within_s: float) -> ToolResult:
        outcome = await entry.container.run(code, within_s)
        self._runs.labels("stopped" if outcome.stopped else "completed" if outcome.ok else "raised").inc()
        return result(code, entry.id, outcome, await images(entry.container, outcome.changed))

    def _seconds(self, context: CallContext) -> float:
        """Return the time of the code, so that its answer comes before the deadline of the call."""
        if context.deadline is None:
            return self.config.time
        left = context.deadline - asyncio.get_running_loop().time() - _MARGIN_S
        return max(min(self.config.time, left), 0.1)

    async def _open(self) -> Containers:
        """Return what starts containers, after a first attempt where none has worked yet. Raises `Unavailable`."""
        async with self._opening:
            if self._containers is None:
                containers = Containers(await self._site.in_thread(launcher, self.config), self.config)
                try:
                    await containers.check()
                except BaseException:
                    await containers.aclose()
                    raise
                self._running.set_function(containers.__len__)
                self._containers = containers
            return self._containers


def _scope_of(context: CallContext) -> str:
    """Return what stands for the credentials that a call brings, in this process; empty for none."""
    brought = context.credentials
    return sha256(json.dumps(sorted(brought.items())).encode()).hexdigest() if brought else ""
