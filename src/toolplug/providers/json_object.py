"""Reading what somebody else wrote, where an object is expected and anything may stand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

_EMPTY: Mapping[str, object] = MappingProxyType({})


def as_object(value: object) -> Mapping[str, object]:
    """The value itself where it is a JSON object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else _EMPTY
