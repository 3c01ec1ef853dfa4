"""`/v1/providers` and `/v1/reload`: what an operator sees and changes."""

from __future__ import annotations

from dataclasses import asdict

from starlette.responses import Response

from toolplug.catalog.text import counted
from toolplug.errors import ConfigError, NoSuchProvider
from toolplug.http.errors import HttpProblem
from toolplug.http.json_body import OrjsonResponse
from toolplug.http.requests import HostRequest


async def list_providers(request: HostRequest) -> Response:
    """Answer every provider with its state, the reason, and what to do about it."""
    return OrjsonResponse({"providers": [asdict(record) for record in request.state["host"].records()]})


async def enable_provider(request: HostRequest) -> Response:
    """Start a provider until the next start or reload. Raises `HttpProblem`."""
    state = request.state
    key = request.path_params["key"]
    try:
        await state["host"].enable(key, by=state["principal"], request_id=state["request_id"])
    except NoSuchProvider as error:
        raise _unknown_provider(error) from None
    except ConfigError as error:
        raise _config_invalid(error) from None
    return _record_response(request, key)


async def disable_provider(request: HostRequest) -> Response:
    """Stop a provider until the next start or reload; what runs ends. Raises `HttpProblem`."""
    state = request.state
    key = request.path_params["key"]
    try:
        await state["host"].disable(key, by=state["principal"], request_id=state["request_id"])
    except NoSuchProvider as error:
        raise _unknown_provider(error) from None
    return _record_response(request, key)


async def reload(request: HostRequest) -> Response:
    """Read the configuration again. Raises `HttpProblem` with every problem in it; then nothing has changed."""
    state = request.state
    try:
        done = await state["host"].reload(by=state["principal"], request_id=state["request_id"])
    except ConfigError as error:
        raise _config_invalid(error) from None
    return OrjsonResponse(done._asdict())


def _record_response(request: HostRequest, key: str) -> Response:
    record = next(record for record in request.state["host"].records() if record.key == key)
    return OrjsonResponse(asdict(record))


def _unknown_provider(error: NoSuchProvider) -> HttpProblem:
    return HttpProblem(404, "provider_not_found", str(error), param="key")


def _config_invalid(error: ConfigError) -> HttpProblem:
    message = f"the configuration has {counted(len(error.problems), 'problem')}; nothing was changed"
    problems = [asdict(problem) for problem in error.problems]
    return HttpProblem(422, "config_invalid", message, extra={"problems": problems})
