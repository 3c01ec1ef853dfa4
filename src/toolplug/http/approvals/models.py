"""What goes over the wire under `/v1/approvals` as pydantic models."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from toolplug.execution.approvals import Decision, TicketState


class DecisionBody(BaseModel):
    """What a person decides."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    decision: Decision


class ApprovalAnswer(BaseModel):
    """One call that waits for a person, or was decided."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    tool: str
    digest: Annotated[str, Field(description="of the tool's definition, as it was when the call was made")]
    arguments: dict[str, object]
    subject: Annotated[str, Field(description="who calls")]
    agent: str | None
    session: Annotated[bool, Field(description="was it made in a session")]
    state: TicketState
    expires_at: str
    decided_by: str | None


class ApprovalList(BaseModel):
    """The tenant's approvals, the one that expires first first."""

    approvals: list[ApprovalAnswer]
