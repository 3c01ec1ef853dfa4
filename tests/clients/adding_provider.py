"""The provider of the client matrix in deployments: its calls are lines of a file that all processes write."""

from __future__ import annotations

from pathlib import Path

from toolplug import FunctionProvider, tool


class Adding(FunctionProvider):
    """Adds."""

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        with Path("added").open("a") as file:
            file.write(f"add {a} {b}\n")
        return a + b
