"""Tasks, threads and caches that every other layer may use; it knows nothing of tools."""

from toolplug.crashes import log_crash
from toolplug.runtime.duplicates import first_repeated
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.runtime.lru import LeastRecentlyUsed
from toolplug.runtime.tasks import BackgroundTasks, wait_for_results
from toolplug.runtime.threads import TooManyWaiting, import_in_thread, in_own_thread
from toolplug.runtime.timers import LoopTimeout

__all__ = [
    "BackgroundTasks",
    "KeyedLocks",
    "LeastRecentlyUsed",
    "LoopTimeout",
    "TooManyWaiting",
    "first_repeated",
    "import_in_thread",
    "in_own_thread",
    "log_crash",
    "wait_for_results",
]
