"""The `http:` section (CONTRACT.md sections 2 and 5)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from toolplug.config.shape_error import shape_error
from toolplug.config.units import Size
from toolplug.host.file.part import Part

_HOST = re.compile(r"[0-9A-Fa-f:]+|(\[[0-9A-Fa-f:.]+\]|[^\s*:\[\]/@]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"null|[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[^\s*:\[\]/@?#]+)(:[0-9]{1,5})?/?")


def _host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise shape_error("a host name as it stands in the Host header, such as tools.example.org, without wildcards")
    return text


def _origin(text: str) -> str:
    """Refuse what no browser sends: it would let nobody in, and nobody would know why."""
    if not _ORIGIN.fullmatch(text):
        raise shape_error("an origin as browsers send it, such as https://app.example.org, without path and wildcards")
    return text


class Http(Part):
    """What the HTTP face lets in."""

    allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(_host_name)], ...],
        Field(strict=False, description="Host names besides the bound one"),
    ] = ()
    allowed_origins: Annotated[
        tuple[Annotated[str, AfterValidator(_origin)], ...],
        Field(strict=False, description="browser origins that may call"),
    ] = ()
    max_body: Annotated[Size, Field(ge=1)] = 1024 * 1024
