"""The `responses:` section (CONTRACT.md sections 2 and 9)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.units import Duration
from toolplug.host.file.part import Part
from toolplug.responses.loop import MAX_TURNS
from toolplug.responses.service import TTL_S


class BackendSettings(Part):
    """The server of models: anything that speaks Chat Completions."""

    base_url: Annotated[str, Field(pattern="^https?://", description="up to /v1; /chat/completions is put after it")]
    api_key: Annotated[SecretStr | None, Field(description="best as ${NAME}; or api_key_file")] = None
    model: Annotated[str | None, Field(min_length=1, description="for requests that name none")] = None
    timeout: Annotated[Duration, Field(gt=0, description="without a word from the server")] = 120.0
    retries: Annotated[int, Field(ge=0, le=10, description="after 429, 5xx and lost connections")] = 2


class ResponsesSettings(Part):
    """Which model answers, and for how long responses are kept. Without this section there is no Responses API."""

    backend: BackendSettings
    max_turns: Annotated[int, Field(ge=1, le=100, description="of one response: the model's answer and its calls")] = (
        MAX_TURNS
    )
    ttl: Annotated[Duration, Field(ge=1, description="how long stored responses are kept")] = TTL_S

    @model_validator(mode="after")
    def _installed(self) -> Self:
        if find_spec("openai") is None:
            raise PydanticCustomError("no_openai", "responses needs the extra: pip install 'toolplug[responses]'")
        return self
