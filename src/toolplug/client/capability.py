"""What an application tells the host about itself when it registers."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

CapabilityType = Literal["data_analysis", "visualization", "messaging", "storage", "computation"]
CapabilityLevel = Literal["basic", "advanced", "enterprise"]
"""In rising order."""


class _Told(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, JsonValue]:
        """As it stands in a registration."""
        return self.model_dump(mode="json", by_alias=True)


class Capability(_Told):
    """One thing that the application can do; `resources` are its own words, which the host keeps as they are."""

    type: CapabilityType
    level: CapabilityLevel = "basic"
    resources: tuple[JsonValue, ...] = ()


class Environment(_Told):
    """Where the application runs; the host keeps it and shows it in the session's metadata."""

    version: str = ""
    features: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    context_info: dict[str, JsonValue] = {}
