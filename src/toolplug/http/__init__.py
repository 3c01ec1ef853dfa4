"""HTTP: the other face of the same host, and what the routes of its parts are made with."""

from toolplug.http.app import create_app, provider_routes
from toolplug.http.requests import HostRequest, part_of
from toolplug.http.routing import Parameter, answers, route

__all__ = ["HostRequest", "Parameter", "answers", "create_app", "part_of", "provider_routes", "route"]
