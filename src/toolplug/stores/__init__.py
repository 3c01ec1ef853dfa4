"""Records and events as bytes: the public names are what a store of a plugin is written with."""

from toolplug.exports import loader, make_lister

HOMES = {
    "INLINE_BYTES": "toolplug.stores.store",
    "KEPT_EVENTS": "toolplug.stores.store",
    "VOLATILE": "toolplug.stores.store",
    "BatchResult": "toolplug.stores.changes",
    "Change": "toolplug.stores.store",
    "Commit": "toolplug.stores.changes",
    "Counters": "toolplug.stores.changes",
    "Event": "toolplug.stores.store",
    "Events": "toolplug.stores.store",
    "Extension": "toolplug.stores.changes",
    "Head": "toolplug.stores.changes",
    "MemoryStore": "toolplug.stores.memory",
    "Missed": "toolplug.stores.store",
    "Record": "toolplug.stores.store",
    "Request": "toolplug.stores.changes",
    "Store": "toolplug.stores.store",
    "StoreOpener": "toolplug.stores.open",
    "Waiting": "toolplug.stores.changes",
    "apply_changes": "toolplug.stores.changes",
    "check_count": "toolplug.stores.changes",
    "check_key": "toolplug.stores.changes",
    "check_keys": "toolplug.stores.changes",
    "check_text": "toolplug.stores.changes",
    "checked_commit": "toolplug.stores.changes",
    "checked_extension": "toolplug.stores.changes",
    "every_key": "toolplug.stores.store",
    "tenant_digest": "toolplug.stores.store",
}
__getattr__ = loader("toolplug.stores", HOMES)
__dir__ = make_lister("toolplug.stores", HOMES)
