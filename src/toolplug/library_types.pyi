from asyncio import timeout_at

from jsonschema_rs import (
    ReferencingError,
    RegexOptions,
    ValidationError,
    ValidationErrorKind,
    Validator,
    meta,
    validator_for,
)
from prometheus_client.registry import Collector
from starlette.routing import Route, compile_path
from typer import Typer

from toolplug.runtime.tasks import in_slices
from toolplug.runtime.threads import in_own_thread
from toolplug.stores.processes import Processes

__all__ = [
    "Collector",
    "Processes",
    "ReferencingError",
    "RegexOptions",
    "Route",
    "Typer",
    "ValidationError",
    "ValidationErrorKind",
    "Validator",
    "compile_path",
    "in_own_thread",
    "in_slices",
    "meta",
    "timeout_at",
    "validator_for",
]
