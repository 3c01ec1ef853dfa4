"""The names that CONTRACT.md section 12 promises."""

from __future__ import annotations

import pytest

import toolplug
import toolplug.http

PROMISED = """
    FunctionProvider tool route hookimpl ToolDefinition ToolCall ToolResult ToolError ToolStatus CallContext Principal
    Catalog merged ToolExecutor FunctionRegistry expand_builtin_tools Expansion UnmatchedStub current_tenant open_host
    Host
"""


@pytest.mark.requirement("C-12-exports")
def test_the_package_exports_the_promised_names() -> None:
    promised = PROMISED.split()
    assert set(promised) <= set(toolplug.__all__)
    assert [name for name in promised if not hasattr(toolplug, name)] == []


@pytest.mark.requirement("C-12-http-exports")
def test_the_http_face_is_an_application_and_the_routes_for_another() -> None:
    assert {"create_app", "provider_routes"} <= set(toolplug.http.__all__)
    assert callable(toolplug.http.create_app)
    assert callable(toolplug.http.provider_routes)
