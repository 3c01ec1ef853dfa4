"""The credential of one caller for one entry with `user_auth`, from where the entry says."""

from __future__ import annotations

from toolplug.catalog.call import CallContext
from toolplug.errors import CREDENTIAL_NEEDED, ToolUnavailable
from toolplug.execution.user_auth import AuthOwner, HostCredentials, UserAuth
from toolplug.providers.host_part import RunningPart

HEADER = "X-Toolplug-Credential-"
"""What a header begins with that carries a caller's credential; its name follows."""


class RunningCredentials(RunningPart[None]):
    """The credentials of a host."""

    def __init__(self) -> None:
        self.credentials: HostCredentials | None = self

    def configure(self, settings: None) -> None:
        """Do nothing: it has no settings."""

    async def aclose(self) -> None:
        """Close nothing."""

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Return what the caller brings. Raises `ToolUnavailable`, with the header that it has to send."""
        name = auth.given_name
        header = f"{HEADER}{name}"
        given = context.credentials.get(name, "")
        if given and given != refused and given.isascii() and given.isprintable():
            return given
        if not given:
            reason = f"it acts as its caller, who has to send a credential as the header {header}"
        elif given == refused:
            reason = f"{owner.key} refuses the credential of the header {header}; send another one"
        else:
            reason = f"the header {header} has characters that cannot be passed on: printable ASCII can"
        raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED, metadata={"credential": {"header": header}})
