"""Codes of JSON-RPC errors that stand for what happened on our own side of the wire.

A server that sends one of them only chooses what its own refusal is called.
"""

from __future__ import annotations

from typing import Final

BAD_ANSWER: Final = -32090
FAILED: Final = -32091
