"""The section `responses` of the file: the server of the models, and how responses are made and kept."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.units import Duration, FileMapping, shape_error
from toolplug.parts.responses.limits import HEAL_S, MAX_TURNS, TTL_S

_ENDPOINT = re.compile(r".*?/(chat/completions|completions|responses)/*(?:[?#].*)?", re.DOTALL)
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*|\$?\{[A-Za-z_][A-Za-z0-9_]*\}|%[A-Za-z_][A-Za-z0-9_]*%")


def _base_url(url: str) -> str:
    endpoint = _ENDPOINT.fullmatch(url)
    if endpoint is not None:
        raise shape_error(f"the URL up to /v1; remove /{endpoint[1]}, as the path of each request is put after it")
    return url


def _plain_key(key: SecretStr) -> SecretStr:
    if _VARIABLE.fullmatch(key.get_secret_value()):
        raise shape_error("a key, or ${NAME} for the variable NAME; other forms of variables are not expanded")
    return key


BaseUrl = Annotated[str, Field(pattern="^https?://"), AfterValidator(_base_url)]
"""The URL of a model's server, without the path of a request."""
PlainKey = Annotated[SecretStr, AfterValidator(_plain_key)]
"""The API key of a model's server, not the name of a variable that has it."""

ItemStyle = Literal["mcp_call", "extension"]
"""How calls of ordinary tools are shown: as a server's, which every client knows, or as items of our own types."""

ToolChangesRule = Literal["replace", "append"]
"""What a change of tools does to a conversation: the list is replaced, or stays and the change is told after it."""


class BackendSettings(FileMapping):
    """The model server: any that speaks Chat Completions."""

    base_url: Annotated[BaseUrl, Field(description="up to /v1; /chat/completions is put after it")]
    api_key: Annotated[PlainKey | None, Field(description="best as ${NAME}; or api_key_file")] = None
    model: Annotated[str | None, Field(min_length=1, description="for requests that name none")] = None
    timeout: Annotated[Duration, Field(gt=0, description="without a word from the server")] = 120.0
    deadline: Annotated[Duration, Field(gt=0, description="for one answer of the server, retries included")] = 600.0
    retries: Annotated[int, Field(ge=0, le=10, description="after 429, 5xx and lost connections")] = 2


class ResponsesSettings(FileMapping):
    """The Responses API: its model server, and how long responses are kept. Without this section there is none."""

    backend: BackendSettings
    max_turns: Annotated[int, Field(ge=1, le=100, description="of one response: the model's answer and its calls")] = (
        MAX_TURNS
    )
    items: Annotated[
        ItemStyle, Field(description="how calls are shown: mcp_call, which every client knows, or a type of our own")
    ] = "mcp_call"
    tool_changes: Annotated[
        ToolChangesRule | None,
        Field(
            description="append: in a stored conversation the list of tools stays, and changes are told after it;"
            " default: append where a session or a server that announces changes is in the list"
        ),
    ] = None
    ttl: Annotated[Duration, Field(ge=1, description="how long stored responses are kept")] = TTL_S
    heal: Annotated[
        Duration,
        Field(ge=0, description="how long hosted calls are kept with store: false, for clients that drop them; 0: off"),
    ] = HEAL_S

    @model_validator(mode="after")
    def _check_installed(self) -> Self:
        if any(find_spec(needed) is None for needed in ("openai", "cryptography")):
            raise PydanticCustomError("no_openai", "responses needs the extra: pip install 'toolplug[responses]'")
        return self
