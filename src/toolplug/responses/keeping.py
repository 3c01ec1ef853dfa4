"""One response while it is made, written down whenever there is something to see."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug.errors import StoreConflict
from toolplug.responses.draft import Draft
from toolplug.responses.input_items import Item
from toolplug.responses.stored import Kept, StoredResponses, with_ids


class Keeping:
    """Knows what it wrote last: a response that another process has stopped or deleted meanwhile stays so."""

    def __init__(
        self, stored: StoredResponses, tenant: str, draft: Draft, sent: Sequence[Item], conversation: str
    ) -> None:
        self._stored = stored
        self._tenant = tenant
        self._draft = draft
        self._sent = with_ids(sent, draft.key)
        self._conversation = conversation
        self._revision = 0

    async def write(self) -> None:
        """Write the response as it is. Raises `StoreConflict` where somebody else has ended it, and `StoreError`."""
        try:
            self._revision = await self._stored.keep(self._tenant, self._kept(), expected=self._revision)
        except StoreConflict:
            mine = await self._stored.unfinished(self._tenant, self._draft.id)
            if mine is None:
                raise
            # A write of ours has been done though it failed: nobody else writes a response but to end it.
            self._revision = await self._stored.keep(self._tenant, self._kept(), expected=mine)

    async def write_cancelled(self) -> None:
        """Write what there is of it, whatever became of the last write. Raises `StoreError`."""
        await self._stored.keep(self._tenant, self._kept())

    def _kept(self) -> Kept:
        return Kept(self._draft.object(), self._sent, self._conversation, self._draft.hidden)
