"""The settings under `providers.notify`."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Self

import httpx2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

_PREFIX = "whsec_"
_FIX = "make one: echo whsec_$(openssl rand -base64 32)"


def _web_url(text: str) -> str:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise PydanticCustomError("web_url", "should be a URL such as https://hooks.example/approvals")
    if url.userinfo or url.fragment:
        raise PydanticCustomError("bare_url", "should have no user and no fragment")
    return text


def key_of(secret: SecretStr) -> bytes:
    """Return the bytes with which messages are signed. Raises `ValueError`."""
    text = secret.get_secret_value().removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"should be base64, with or without whsec_ before it; {_FIX}") from None
    # The bounds of Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks
    if not 24 <= len(key) <= 64:
        raise ValueError(f"should be 24 to 64 bytes in base64, and has {len(key)}; {_FIX}")
    return key


class Settings(BaseModel):
    """Where messages go, and what they contain."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # A secret: whoever has the address of an incoming webhook of Slack or Mattermost can write to the channel.
    url: Annotated[
        SecretStr,
        Field(strict=False, description="where messages are sent; any address, as the operator wrote it"),
    ]
    secret: Annotated[
        SecretStr | None,
        Field(strict=False, description="signs the messages: whsec_ and base64, of 24 to 64 bytes; none: not signed"),
    ] = None
    with_arguments: Annotated[bool, Field(description="send the arguments of calls too")] = False
    console: Annotated[
        Annotated[str, AfterValidator(_web_url)] | None,
        Field(description="address of the console, such as https://tools.example/console, for links to approvals"),
    ] = None

    # Not of the fields: of a secret that is not valid the host says no reason, which might have its value.
    @model_validator(mode="after")
    def _has_valid_secrets(self) -> Self:
        try:
            _web_url(self.url.get_secret_value())
        except PydanticCustomError as error:
            raise PydanticCustomError("url", "url {why}", {"why": error.message()}) from None
        try:
            if self.secret is not None:
                key_of(self.secret)
        except ValueError as error:
            raise PydanticCustomError("secret", "secret {why}", {"why": str(error)}) from None
        return self
