"""What a `{"type": "code_interpreter"}` entry of a request may say, and `options` of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class NoNetwork(BaseModel):
    """The only policy that there is."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["disabled"]


class Automatic(BaseModel):
    """A container that the calls of one response, or of one session, share; `file_ids` are not supported."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["auto"]
    network_policy: NoNetwork | None = None


class StubOptions(BaseModel):
    """OpenAI's options of the built-in tool."""

    model_config = ConfigDict(extra="forbid")

    container: str | Automatic = Field(default=Automatic(type="auto"), description="the id of a container, or auto")


def named_container(options: Mapping[str, object]) -> str | None:
    """Return the container that the options, which the host has validated, name; None for a shared one."""
    container = StubOptions.model_validate(dict(options)).container
    return container if isinstance(container, str) else None
