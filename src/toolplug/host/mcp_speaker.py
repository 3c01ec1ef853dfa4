"""The one place that decides to import the SDK of Model Context Protocol."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from toolplug.mcp.speaker import Speaker

_SDK = "toolplug.mcp.sdk.answering"


def mcp_speaker() -> Speaker:
    """What speaks the protocol. Raises `ModuleNotFoundError` without the extra `mcp`."""
    return cast("Speaker", import_module(_SDK).SdkSpeaker())  # a module that is imported by name has no types
