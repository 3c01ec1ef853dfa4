"""OpenTelemetry for tool calls: a span and a duration for each, by the conventions for generative AI."""

from toolplug_otel.provider import OpenTelemetry, Settings

__all__ = ["OpenTelemetry", "Settings"]
