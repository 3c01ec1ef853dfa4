"""The plugin: which tracers it gives to the host, and what it exports when the host closes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Self

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider, TracerProvider
from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolplug import FunctionProvider, ProviderContext
from toolplug_otel.environment import Providers, check_environment, flush, process_providers
from toolplug_otel.tracer import ToolTracer, duration_histogram

_SCOPE = "toolplug"
MAX_FLUSH_S = 4.0
"""A host gives a provider 5 s to close."""


class Settings(BaseModel):
    """The settings in the configuration; exporters, sampling and limits are those of the variables `OTEL_*`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    flush_timeout_s: Annotated[
        float, Field(gt=0, le=MAX_FLUSH_S, description="seconds in which waiting spans are exported at the end")
    ] = 2.0

    @model_validator(mode="after")
    def _exporters_exist(self) -> Self:
        check_environment(os.environ)  # here, so that `toolplug check` reports it
        return self


class OpenTelemetry(FunctionProvider):
    """Makes a span for every tool call of the host, refused ones too, and records its duration.

    Spans and durations go to the given providers; without them to those that the application has set for the process,
    else to exporters that the variables `OTEL_*` name. A given one is neither flushed nor shut down here.
    """

    Config = Settings
    config: Settings

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        super().__init__()
        self._given = Providers(tracer_provider, meter_provider)
        self._providers = Providers(None, None)

    async def start(self, site: ProviderContext) -> None:
        """Find or set the providers. Raises `ValueError` for a variable that names what does not exist."""
        if self._given == Providers(None, None):
            self._providers = await asyncio.to_thread(process_providers, os.environ)
        else:
            self._providers = self._given

    def call_tracers(self) -> Sequence[ToolTracer]:
        """Return one tracer, or none if neither spans nor durations go anywhere: calls then cost what they did."""
        traces, metrics = self._providers
        if traces is None and metrics is None:
            return ()
        package = version("toolplug-otel")
        tracer = (traces or NoOpTracerProvider()).get_tracer(_SCOPE, package)
        meter = (metrics or NoOpMeterProvider()).get_meter(_SCOPE, package)
        return (ToolTracer(tracer, duration_histogram(meter)),)

    async def aclose(self) -> None:
        """Export what is waiting, for a limited time; what takes longer is left to the daemon threads."""
        if self._providers != self._given:
            await _in_daemon_thread(self._providers, self.config.flush_timeout_s, self.log)


async def _in_daemon_thread(providers: Providers, timeout_s: float, log: logging.Logger) -> None:
    """Flush in a thread that does not keep the process from exiting, as those of `asyncio.to_thread` do."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            flush(providers, timeout_s)
        except Exception as error:  # noqa: BLE001  an exporter may raise anything, and there is nobody to raise it to
            log.warning("what is left cannot be exported: %s", type(error).__name__)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="toolplug-otel-flush", daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await done.wait()
