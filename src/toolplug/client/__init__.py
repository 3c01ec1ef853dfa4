"""Clients of a host: applications that lend their functions as tools, and observers of sessions."""

from toolplug.client.application import Application
from toolplug.client.events import OfferedTool, Snapshot, StatusChanged, ToolsChanged, ToolUpdates, watch
from toolplug.client.host_requests import Backoff
from toolplug.client.session_requests import Difference, compare_tools, needed_capabilities
from toolplug.client.tool import Capability, Environment, Requirement, Tool
from toolplug.errors import HostError, HostRefused, HostUnreachable, SessionOver

__all__ = [
    "Application",
    "Backoff",
    "Capability",
    "Difference",
    "Environment",
    "HostError",
    "HostRefused",
    "HostUnreachable",
    "OfferedTool",
    "Requirement",
    "SessionOver",
    "Snapshot",
    "StatusChanged",
    "Tool",
    "ToolUpdates",
    "ToolsChanged",
    "compare_tools",
    "needed_capabilities",
    "watch",
]
