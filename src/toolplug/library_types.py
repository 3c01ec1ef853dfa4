"""Names of libraries that only some providers need; a library is imported at the first use of one of its names.

prometheus-client takes 30 ms to import and Starlette's routes 14, and most providers have neither metrics nor routes.
Type checkers read the same list in `library_types.pyi`.
"""

from __future__ import annotations

from collections.abc import Callable

from toolplug.exports import loader

HOMES = {
    "Collector": "prometheus_client.registry",
    "Route": "starlette.routing",
    "compile_path": "starlette.routing",
}

__getattr__: Callable[[str], object] = loader("toolplug.library_types", HOMES)
