"""The section `credentials` of the file: whether a browser has to sign in to the host before it connects a caller."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from toolplug.config.units import FileMapping


class LoginClient(FileMapping):
    """The client as which the host has people sign in at `auth.jwt.issuer`."""

    client_id: Annotated[str, Field(min_length=1, description="its ID tokens are for this audience")]
    client_secret: Annotated[SecretStr | None, Field(description="best as ${NAME}; none: a public client")] = None


class CredentialSettings(FileMapping):
    """How a browser that opens a link to sign in shows whose it is."""

    login: Annotated[
        LoginClient | None,
        Field(description="it signs in at auth.jwt.issuer first, and must be the caller; none: whoever presses is"),
    ] = None
