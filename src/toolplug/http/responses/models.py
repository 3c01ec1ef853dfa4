"""`GET /v1/models`: the models that a request may name; chat clients ask for them first."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from toolplug.http.request_body import OrjsonResponse
from toolplug.http.requests import HostRequest
from toolplug.http.responses.create import service_of
from toolplug.http.routing import CALL, answers, route
from toolplug.responses.backend import ModelAnswer


class ModelList(TypedDict):
    """The models that a request may name."""

    object: Literal["list"]
    data: list[ModelAnswer]


@route("GET", "/v1/models", CALL, "The models of the model's server")
@answers(ModelList, errors=(404, 429, 502))
async def list_models(request: HostRequest) -> OrjsonResponse[ModelList]:
    """Answer the models. Raises `HttpProblem` and `BackendFailed`."""
    return OrjsonResponse({"object": "list", "data": await service_of(request).models()})
