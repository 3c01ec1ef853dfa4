"""The agentic loop of OpenResponses over any tool executor and any Chat Completions backend."""

from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.responses.backend import Backend, CallPart, Delta, Question, Usage
from toolplug.responses.builder import Event, ResponseBuilder
from toolplug.responses.loop import Loop
from toolplug.responses.offer import ToolCaller
from toolplug.responses.request import ResponseRequest
from toolplug.responses.service import Responses

__all__ = [
    "Backend",
    "BackendFailed",
    "CallPart",
    "Delta",
    "Event",
    "Loop",
    "Question",
    "ResponseBuilder",
    "ResponseRefused",
    "ResponseRequest",
    "Responses",
    "ToolCaller",
    "Usage",
]
