"""How much of a model's context tools take, counted by a real tokenizer."""

from __future__ import annotations

import json
from typing import NamedTuple

import tiktoken

from toolplug import Catalog

ENCODING = "cl100k_base"
_OFFLINE = f"{ENCODING}_offline"


class ContextTokens(NamedTuple):
    """The tokens of a list of tools in the chat dialect, and of each tool in it by canonical name."""

    total: int
    tools: dict[str, int]


def context_tokens(catalog: Catalog) -> ContextTokens:
    """Count the tools as a model reads them, notes included. Blocks; the first time it reads the vocabulary."""
    encoding = tiktoken.get_encoding(_OFFLINE)
    if not catalog:
        return ContextTokens(0, {})
    text = catalog.render("chat").decode()
    parts = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in json.loads(text)]
    counts = [len(tokens) for tokens in encoding.encode_ordinary_batch(parts, num_threads=1)]
    return ContextTokens(len(encoding.encode_ordinary(text)), dict(zip(catalog, counts, strict=True)))
