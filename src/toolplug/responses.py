"""The agentic loop of OpenResponses over any tool executor and any Chat Completions backend."""

from toolplug.errors import BackendFailed, ResponseRefused
from toolplug.parts.responses.answers.tracing import ChatSpan, TurnSpan, TurnTracer
from toolplug.parts.responses.backend import Backend, CallPart, Delta, Question, Usage
from toolplug.parts.responses.builder import Event, ResponseBuilder
from toolplug.parts.responses.loop import Loop
from toolplug.parts.responses.offer import ToolCaller
from toolplug.parts.responses.request import ResponseRequest
from toolplug.parts.responses.service import Responses

__all__ = [
    "Backend",
    "BackendFailed",
    "CallPart",
    "ChatSpan",
    "Delta",
    "Event",
    "Loop",
    "Question",
    "ResponseBuilder",
    "ResponseRefused",
    "ResponseRequest",
    "Responses",
    "ToolCaller",
    "TurnSpan",
    "TurnTracer",
    "Usage",
]
