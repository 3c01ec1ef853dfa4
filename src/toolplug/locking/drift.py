"""What is not as the lock of a running host has it, for `toolplug doctor`."""

from __future__ import annotations

import os

from toolplug.catalog.call import Principal
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import Source, read_configuration
from toolplug.host.host import Host
from toolplug.locking.files import FilesUnreadable
from toolplug.locking.lock_file import read_lock
from toolplug.locking.making import list_differences, list_provider_tools, list_server_tools, make_lock
from toolplug.locking.reader import lock_of
from toolplug.providers.entry_points import find_installed

_FIX = "look at it, then: toolplug lock; serve --locked refuses it until then"


async def find_drift(source: Source, host: Host, by: Principal) -> list[Problem]:
    """Return a warning for each difference between the lock of a configuration and what is there; none without a lock.

    `host` has started the configuration's providers; the servers of the file are listed.
    """
    lock = lock_of(source)
    if not lock.exists():
        return []
    try:
        before = read_lock(lock)
    except ConfigError as error:
        return list(error.problems)
    try:
        configuration = read_configuration(source, os.environ, find_installed()).release()
        servers = await list_server_tools(host, [], by)
        made = make_lock(configuration, lock.parent, list_provider_tools(host), servers)
        lines = [*list_differences(before, made.lock)]
    except ConfigError:
        return []  # what is wrong with the configuration is among the errors, and its packages are not known
    except FilesUnreadable as error:
        lines = [str(error)]
    return [Problem(code="lock_drift", message=line, file=str(lock), hint=_FIX) for line in lines]
