"""Records and events as bytes: the public names are what a store of a plugin is written with."""

from toolplug.stores.changes import (
    BatchResult,
    Commit,
    Counters,
    Extension,
    Head,
    Request,
    apply_changes,
    check_count,
    check_key,
    check_keys,
    check_text,
    checked_commit,
    checked_extension,
)
from toolplug.stores.memory import MemoryStore
from toolplug.stores.open import StoreOpener
from toolplug.stores.store import (
    INLINE_BYTES,
    KEPT_EVENTS,
    VOLATILE,
    Change,
    Event,
    Events,
    Missed,
    Record,
    Store,
    every_key,
    tenant_digest,
)
from toolplug.stores.waiting import Waiting

__all__ = [
    "INLINE_BYTES",
    "KEPT_EVENTS",
    "VOLATILE",
    "BatchResult",
    "Change",
    "Commit",
    "Counters",
    "Event",
    "Events",
    "Extension",
    "Head",
    "MemoryStore",
    "Missed",
    "Record",
    "Request",
    "Store",
    "StoreOpener",
    "Waiting",
    "apply_changes",
    "check_count",
    "check_key",
    "check_keys",
    "check_text",
    "checked_commit",
    "checked_extension",
    "every_key",
    "tenant_digest",
]
