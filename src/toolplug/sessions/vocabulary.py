"""The closed sets of words that sessions speak in (CONTRACT.md section 6)."""

from __future__ import annotations

from typing import Literal

CapabilityType = Literal["data_analysis", "visualization", "messaging", "storage", "computation"]
CapabilityLevel = Literal["basic", "advanced", "enterprise"]
PluginStatus = Literal["attached", "waiting", "detached"]
"""A stream of the plugin is open; none is, within the grace time; none is."""
StreamRole = Literal["client", "plugin"]
