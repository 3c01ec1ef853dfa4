"""The names that others may import, frozen: a change here is a change of the contract."""

from __future__ import annotations

from types import ModuleType

import pytest

import toolplug
import toolplug.http

NAMES = {
    "CallContext", "Catalog", "Expansion", "FunctionProvider", "FunctionRegistry", "Host", "Principal", "ToolCall",
    "ToolDefinition", "ToolError", "ToolExecutor", "ToolResult", "ToolStatus", "UnmatchedStub", "current_tenant",
    "expand_builtin_tools", "hookimpl", "merged", "open_host", "route", "tool",
}  # fmt: skip
HTTP_NAMES = {"create_app", "provider_routes"}


@pytest.mark.requirement("C-12-exports", "C-12-http-exports")
@pytest.mark.parametrize(("module", "names"), [(toolplug, NAMES), (toolplug.http, HTTP_NAMES)], ids=["core", "http"])
def test_exactly_the_agreed_names_are_public(module: ModuleType, names: set[str]) -> None:
    assert set(vars(module).get("__all__", ())) == names
    assert all(getattr(module, name).__doc__ for name in names)
