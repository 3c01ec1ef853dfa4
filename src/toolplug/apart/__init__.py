"""Providers that run in a process of their own (docs/how-to/run-providers-apart.md), and single functions that do."""

from __future__ import annotations

from toolplug.apart.calls import ApartCallFailed, FunctionProcess, call

__all__ = ["ApartCallFailed", "FunctionProcess", "call"]
