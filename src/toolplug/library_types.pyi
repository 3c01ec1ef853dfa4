from prometheus_client.registry import Collector
from starlette.routing import Route, compile_path

__all__ = ["Collector", "Route", "compile_path"]
