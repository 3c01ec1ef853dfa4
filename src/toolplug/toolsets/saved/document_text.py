"""Documents as text: JSON for programs, YAML for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import orjson
import yaml

from toolplug.config.document import parse_document
from toolplug.config.node import Value

Form = Literal["json", "yaml"]

_WIDTH = 100


def document_text(fields: Mapping[str, object], form: Form) -> bytes:
    """The document, one key a line, in the order of its fields."""
    if form == "json":
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=_WIDTH, encoding="utf-8")


def yaml_fields(text: bytes, *, file: str) -> dict[str, Value]:
    """What a YAML document says, read within the limits of configuration files. Raises `ConfigError`."""
    return parse_document(text, file=file).value
