"""Whose credential a call carries: the `user_auth` of an entry, and the part of the host that finds the credential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple, Protocol, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug.catalog.call import CallContext
from toolplug.config.file_mapping import FileMapping
from toolplug.config.units import shape_error
from toolplug.errors import CREDENTIAL_NEEDED, ToolUnavailable

_GIVEN = "credential:"


def _format(text: str) -> str:
    if text.count("{}") != 1 or not text.isascii() or not text.isprintable():
        raise shape_error("printable ASCII with {} once, where the credential goes, such as 'Bearer {}'")
    return text


class UserAuth(FileMapping):
    """How the credential of the caller itself is found for a system behind tools, and the header that it goes into."""

    source: Annotated[
        str | None,
        Field(
            alias="from",
            pattern=f"^{_GIVEN}[a-z0-9][a-z0-9-]{{0,63}}$",
            description="credential:NAME, what the caller sends as X-Toolplug-Credential-NAME",
        ),
    ] = None
    header: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$", description="with from: the header that the server gets")
    ] = "Authorization"
    format: Annotated[
        str, AfterValidator(_format), Field(description="with from: the value of the header, with the credential as {}")
    ] = "{}"

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.source is None:
            raise PydanticCustomError("one_kind", "must have from: credential:NAME")
        return self

    @property
    def given_name(self) -> str:
        """The name of the credential that the caller brings, in lower case; empty for another kind."""
        return (self.source or "").removeprefix(_GIVEN)

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the header of a request that carries this credential."""
        return {self.header: self.format.replace("{}", credential)}


class AuthOwner(NamedTuple):
    """The entry that has a `user_auth`: its kind as in `ToolRef.kind`, its key, and the URL of a server."""

    kind: str
    key: str
    url: str = ""


class HostCredentials(Protocol):
    """Finds the credentials of callers; a part of the host."""

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Return the credential of this caller, another one than the `refused` one. Raises `ToolUnavailable`."""
        ...


class NoCredentials:
    """The credentials of a registry, or of a host without that part: none."""

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Raise `ToolUnavailable`."""
        raise ToolUnavailable("user_auth needs a host with the part `credentials`", code=CREDENTIAL_NEEDED)


NO_CREDENTIALS: HostCredentials = NoCredentials()


class PartCredentials(NoCredentials):
    """Asks the part that is open when a call is made: plans are built before parts are open."""

    current: HostCredentials = NO_CREDENTIALS

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Ask the part."""
        return await self.current.credential(owner, auth, context, refused)
