"""The plugin: which tracers it gives to the host, and what it exports when the host closes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
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
        self._site: ProviderContext | None = None

    async def start(self, site: ProviderContext) -> None:
        """Find or set the providers. Raises `ValueError` for a variable that names what does not exist."""
        self._site = site
        if self._given == Providers(None, None):
            self._providers = await site.in_thread(process_providers, os.environ)
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
        """Export what is waiting, for a limited time; what takes longer is left to its thread."""
        if self._site is None or self._providers == self._given:
            return
        within_s = self.config.flush_timeout_s
        try:
            async with asyncio.timeout(within_s):
                await self._site.in_thread(flush, self._providers, within_s)
        except TimeoutError:
            pass
        except Exception as error:  # noqa: BLE001  an exporter may raise anything, and there is nobody to raise it to
            self.log.warning("what is left cannot be exported: %s", type(error).__name__)
