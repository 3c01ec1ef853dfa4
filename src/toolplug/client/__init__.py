"""Clients of a host: applications that lend their functions as tools, and watchers of what is lent."""

from toolplug.client.application import Application
from toolplug.client.capability import Capability, Environment
from toolplug.client.changes import OfferedTool, Snapshot, StatusChanged, ToolsChanged, ToolUpdates
from toolplug.client.pace import Pace
from toolplug.client.tool import Requirement, Tool
from toolplug.client.watch import watch
from toolplug.errors import HostError, HostRefused, HostUnreachable, SessionOver

__all__ = [
    "Application",
    "Capability",
    "Environment",
    "HostError",
    "HostRefused",
    "HostUnreachable",
    "OfferedTool",
    "Pace",
    "Requirement",
    "SessionOver",
    "Snapshot",
    "StatusChanged",
    "Tool",
    "ToolUpdates",
    "ToolsChanged",
    "watch",
]
