"""HTTP: the other face of the same host, and what the routes of its parts are made with."""

from toolplug.http.app import create_app, provider_routes
from toolplug.http.bodies.foreign_requests import IgnoredParts
from toolplug.http.errors import HttpProblem
from toolplug.http.requests import HostRequest, credential_scope, part_of
from toolplug.http.routing import Parameter, answers, route

__all__ = [
    "HostRequest",
    "HttpProblem",
    "IgnoredParts",
    "Parameter",
    "answers",
    "create_app",
    "credential_scope",
    "part_of",
    "provider_routes",
    "route",
]
