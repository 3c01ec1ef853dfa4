"""The section `tasks` of the file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from toolplug.config import Duration, FileMapping


class TaskSettings(FileMapping):
    """When a call becomes a task, and how long it may go on."""

    tasks_after: Annotated[
        Duration, Field(ge=0, le=3_600, description="how long a call runs before its client gets a task, at most 1h")
    ] = 10.0
    task_timeout: Annotated[
        Duration,
        Field(ge=1, le=86_400, description="how long a task may run, whatever the tool's timeout; at most 24h"),
    ] = 3_600.0
