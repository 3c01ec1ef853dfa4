"""Tasks, threads and caches that every other layer may use; it knows nothing of tools."""

from toolplug.exports import loader, make_lister

HOMES = {
    "BackgroundTasks": "toolplug.runtime.tasks",
    "KeyedLocks": "toolplug.runtime.keyed_locks",
    "LeastRecentlyUsed": "toolplug.runtime.lru",
    "LoopTimeout": "toolplug.runtime.timers",
    "TooManyWaiting": "toolplug.runtime.threads",
    "first_repeated": "toolplug.runtime.duplicates",
    "import_in_thread": "toolplug.runtime.threads",
    "in_own_thread": "toolplug.runtime.threads",
    "log_crash": "toolplug.crashes",
    "wait_for_results": "toolplug.runtime.tasks",
}
__getattr__ = loader("toolplug.runtime", HOMES)
__dir__ = make_lister("toolplug.runtime", HOMES)
