"""A request's settings as a Chat Completions request: only what the client has said, so that any server takes it."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug.responses.backend import Question
from toolplug.responses.draft import Draft
from toolplug.responses.offer import Offer
from toolplug.responses.request import ResponseRequest, Text

LOGPROBS = "message.output_text.logprobs"

_AS_THEY_ARE = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "user",
)


def question(
    request: ResponseRequest, draft: Draft, messages: Sequence[object], offer: Offer, choice: object
) -> Question:
    """One turn's request."""
    asked: dict[str, object] = {"model": draft.model, "messages": messages}
    if offer.tools:
        asked["tools"] = offer.tools
        if choice is not None:
            asked["tool_choice"] = choice
        if request.parallel_tool_calls is False:
            asked["parallel_tool_calls"] = False
    asked.update({name: value for name in _AS_THEY_ARE if (value := getattr(request, name)) is not None})
    if request.max_output_tokens is not None:
        spent = 0 if draft.usage is None else draft.usage.output
        asked["max_completion_tokens"] = max(request.max_output_tokens - spent, 1)
    if request.reasoning is not None and request.reasoning.effort is not None:
        asked["reasoning_effort"] = request.reasoning.effort
    if request.text is not None:
        asked.update(_of_text(request.text))
    if LOGPROBS in (request.include or ()):
        asked["logprobs"] = True
        if request.top_logprobs is not None:
            asked["top_logprobs"] = request.top_logprobs
    return asked


def _of_text(text: Text) -> dict[str, object]:
    asked: dict[str, object] = {} if text.verbosity is None else {"verbosity": text.verbosity}
    form = text.format
    if form is not None and form.type == "json_schema":
        schema = form.model_dump(by_alias=True, exclude_none=True, exclude={"type"})
        asked["response_format"] = {"type": form.type, "json_schema": schema}
    elif form is not None and form.type == "json_object":
        asked["response_format"] = {"type": form.type}
    return asked
