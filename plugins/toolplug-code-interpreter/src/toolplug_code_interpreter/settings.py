"""What an operator may set under `providers.code_interpreter`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ByteSize, ConfigDict, Field

MIB = 1024 * 1024
MAX_IDLE_S = 20 * 60.0


class Settings(BaseModel):
    """Limits hold for a container: for all its processes together. Sizes are bytes, or a text such as `512MiB`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: Annotated[ByteSize, Field(ge=64 * MIB, description="memory of the processes of a container together")] = (
        ByteSize(512 * MIB)
    )
    processes: Annotated[int, Field(ge=1, le=4096, description="processes and threads of a container together")] = 64
    disk: Annotated[ByteSize, Field(ge=MIB, description="files of a container together; they are kept in memory")] = (
        ByteSize(256 * MIB)
    )
    time: Annotated[float, Field(gt=0, le=3600, description="seconds that a call may take")] = 60.0
    output: Annotated[
        ByteSize, Field(ge=1024, le=16 * MIB, description="output of a call: stdout, stderr and last value together")
    ] = ByteSize(MIB)
    idle: Annotated[
        float, Field(gt=0, le=MAX_IDLE_S, description="seconds without a call after which a container ends")
    ] = MAX_IDLE_S
    max_containers: Annotated[int, Field(ge=1, le=1000, description="containers at the same time")] = 40
    max_containers_per_tenant: Annotated[int, Field(ge=1, description="containers of a tenant at the same time")] = 20
    python: Annotated[
        str | None,
        Field(min_length=1, description="Python that runs the code, with its packages; by default toolplug's own"),
    ] = None
    first_uid: Annotated[
        int,
        Field(
            ge=1,
            le=4_000_000_000,
            description="where toolplug runs as root: the first of 1,000 user ids that no user has; each container "
            "has one of its own",
        ),
    ] = 61_000
