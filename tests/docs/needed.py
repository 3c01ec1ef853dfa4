"""What a page has to tell its reader to install: whoever comes to it from a search has only Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from tests.docs.fences import fences

EXTRA_OF_IMPORT = {
    r"toolplug\.client": "client",
    r"toolplug\.testing": "testing",
    r"toolplug\.responses": "responses",
}
PACKAGE_OF_IMPORT = {
    "toolplug_hello": "toolplug-hello",
    "fastapi": "fastapi",
    "openai": "openai",
    "anthropic": "anthropic",
    "pydantic_ai": "pydantic-ai",
    "langchain": "langchain",
    "llama_index": "llama-index",
    "agents": "openai-agents",
}
PLUGINS = {
    name: f"toolplug-{name.replace('_', '-')}"
    for name in (
        *("hello", "journal", "guard", "notify", "otel", "web_search", "file_search", "code_interpreter", "code_mode"),
        *("openapi", "remote", "redis", "postgres", "llm", "langchain", "llama_index", "fastmcp", "skills", "tasks"),
    )
}
"""The packages of the types of `providers:`; toolsets comes with toolplug's own examples and console with `server`."""
COMMAND = re.compile(r"^\$ (?:\w+=\S+ )*(?:toolplug|uvicorn) ", re.MULTILINE)


def needs_of(page: str) -> set[str]:
    """The packages, and the extras of toolplug as `[name]`, that the blocks of a page need."""
    needed: set[str] = set()
    for block in fences(page):
        if block.language == "console" and COMMAND.search(block.text):
            needed |= {"[server]"} | ({"[mcp]"} if re.search(r"/mcp\b(?!-)|--stdio", block.text) else set())
        if block.language == "python":
            needed |= set(_of_imports(block.text))
        if block.language == "yaml":
            needed |= set(_of_settings(yaml.safe_load(block.text) or {}))
    if needed & {"[mcp]", "[responses]", "[auth]"} or any("hello" in each for each in needed):
        needed.add("[server]")
    return needed - ({"openai"} if "[responses]" in needed else set())


def told_in(page: str) -> set[str]:
    """The packages and extras that the page's `pip install` name."""
    lines = " ".join(re.findall(r"pip install ([^\n]*(?:\n[^\n]+)?)", page))
    extras = {f"[{name}]" for names in re.findall(r"toolplug\[([\w,]+)\]", lines) for name in names.split(",")}
    return extras | set(re.findall(r"[\w-]+", lines))


def _of_imports(code: str) -> Iterator[str]:
    for module, extra in EXTRA_OF_IMPORT.items():
        if re.search(rf"^\s*(?:from|import) {module}\b", code, re.MULTILINE):
            yield f"[{extra}]"
    for module, package in PACKAGE_OF_IMPORT.items():
        if re.search(rf"^\s*(?:from|import) {module}\b", code, re.MULTILINE):
            yield package


def _of_settings(settings: Any) -> Iterator[str]:
    if not isinstance(settings, dict):
        return
    for key, entry in (settings.get("providers") or {}).items():
        named = (entry or {}).get("type", key)
        if package := PLUGINS.get(named):
            yield package
    if "mcp_servers" in settings:
        yield "[mcp]"
    if "responses" in settings:
        yield "[responses]"
    if "jwt" in (settings.get("auth") or {}):
        yield "[auth]"
    if scheme := re.match(r"(redis|postgres)", str(settings.get("store", ""))):
        yield PLUGINS[scheme[0]]
