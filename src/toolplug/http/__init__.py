"""HTTP: the other face of the same host."""

from toolplug.http.app import create_app, provider_routes

__all__ = ["create_app", "provider_routes"]
