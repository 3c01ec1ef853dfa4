"""The section `approvals` of the file: how long a question waits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolplug.config.units import Duration, FileMapping
from toolplug.part_protocols.approvals import LIFE_S
from toolplug.parts.approvals.limits import MAX_LIFE_S


class ApprovalSettings(FileMapping):
    """How long a call waits for a person."""

    life: Annotated[
        Duration,
        Field(ge=1, le=MAX_LIFE_S, description="how long a call waits for a decision, at most 168h; restarts end none"),
    ] = LIFE_S
