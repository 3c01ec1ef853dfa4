"""The key with which a person decides on calls over HTTP where no credentials tell a person from a caller."""

from __future__ import annotations

import logging
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple, Self

from toolplug.host.keys.private_file import KEY_TEXT, make_private, new_key, read_private

FILE = "decide.key"
"""In the state folder of the host, readable for its user alone."""

HEADER = "X-Toolplug-Decide"
"""The header of a request that decides."""

_LOG = logging.getLogger("toolplug.host")


class DecisionKey(NamedTuple):
    """The key as text, and the file that holds it; None for a host without files, whose key is in memory only."""

    text: str
    file: Path | None

    @classmethod
    def open(cls, folder: Path | None) -> Self:
        """Return the key of the file in this folder, which is made if there is no valid one; blocks.

        The processes of one folder have the same key. If the file cannot be written, it is in memory, with a warning.
        """
        made = new_key()
        if folder is None:
            return cls(made, None)
        file = folder / FILE
        try:
            return cls(read_private(file, KEY_TEXT) or make_private(file, made, KEY_TEXT), file)
        except OSError as error:
            _LOG.warning("the decision key is kept in memory only, as %s cannot be written: %s", file, error)
            return cls(made, None)

    @property
    def header(self) -> str:
        """The line to send with a decision."""
        return f"{HEADER}: {self.text}"

    def matches(self, given: bytes | None) -> bool:
        """Return whether this is the key; takes the same time for every wrong one of its length."""
        return given is not None and compare_digest(self.text.encode(), given)
