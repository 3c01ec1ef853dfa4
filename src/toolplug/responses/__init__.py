"""The agentic loop of OpenResponses over any tool executor and any Chat Completions backend."""

from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.responses.backend import Backend, CallPart, Delta, Question, Usage
from toolplug.responses.builder import Draft, Event
from toolplug.responses.loop import Loop
from toolplug.responses.offer import Asker
from toolplug.responses.request import ResponseRequest
from toolplug.responses.service import Responses

__all__ = [
    "Asker",
    "Backend",
    "BackendFailed",
    "CallPart",
    "Delta",
    "Draft",
    "Event",
    "Loop",
    "Question",
    "ResponseRefused",
    "ResponseRequest",
    "Responses",
    "Usage",
]
