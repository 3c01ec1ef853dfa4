"""Making a lock: what a configuration has enabled, as it is installed, and the tools that it offers.

`find_drift` is what `toolplug doctor` shows of a running host.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolplug.catalog.call import Principal
from toolplug.errors import ApiError, ConfigError, Problem, ProviderError
from toolplug.host.file.configuration import Configuration, Source, read_configuration
from toolplug.host.host import Host
from toolplug.locking.files import FilesUnreadable
from toolplug.locking.installed import InstalledPackages, PackageNow
from toolplug.locking.lock_file import Lock, LockedPackage, LockedProvider, LockedServer, read_lock
from toolplug.locking.reader import (
    compare_data,
    compare_environment,
    compare_package,
    compare_tools,
    lock_of,
    name_python,
    packages_of,
)
from toolplug.packages.entry_points import find_installed

Tools = Mapping[str, Mapping[str, str]]
"""The digests of tools by their names, by the provider or server that has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLock:
    """A lock of what is there now. `warnings` are what a person should look at before it is trusted."""

    lock: Lock
    warnings: tuple[str, ...] = ()


def make_lock(configuration: Configuration, folder: Path, provider_tools: Tools, server_tools: Tools) -> MadeLock:
    """Return the lock of a configuration whose providers have these tools. Raises `FilesUnreadable`."""
    known: dict[str, InstalledPackages] = {}
    packages: dict[tuple[str, str], PackageNow] = {}
    providers: list[LockedProvider] = []
    for key, (entry, kind) in configuration.providers.loaded.items():
        found, python = kind.installed, name_python(entry.python, folder)
        own: list[PackageNow] = []
        if found.file is None and not entry.dialled:
            own = packages_of(known, python, entry.python).closure(found.distribution)
            packages |= {each.locked.key: each for each in own}
        locked = LockedProvider(
            key=key,
            type=found.type,
            python=python,
            package=own[0].locked.name if own else "",
            digest=hashlib.sha256(found.code).hexdigest() if found.file is not None else "",
            needs=tuple(each.locked.name for each in own[1:]),
            tools=dict(provider_tools.get(key, {})),
            data=_list_data(configuration, key),
        )
        providers.append(locked)
    return MadeLock(
        lock=Lock(
            environments=tuple(each.environment() for each in known.values()),
            packages=tuple(packages[key].locked for key in sorted(packages)),
            providers=tuple(providers),
            servers=tuple(LockedServer(id=key, tools=dict(tools)) for key, tools in server_tools.items()),
        ),
        warnings=tuple(line for each in packages.values() for line in _warn(each)),
    )


def update_lock(before: Lock, now: Lock, keys: Collection[str]) -> Lock:
    """Return a lock in which these entries, with all that their packages need, are as they are now."""
    providers = {each.key: each for each in before.providers} | {
        each.key: each for each in now.providers if each.key in keys
    }
    servers = {each.id: each for each in before.servers} | {each.id: each for each in now.servers if each.id in keys}
    here = {each.key for each in now.providers} | {each.id for each in now.servers}
    for key in [key for key in keys if key not in here]:  # removed from the configuration
        providers.pop(key, None)
        servers.pop(key, None)
    packages = {each.key: each for each in before.packages}
    for provider in now.providers:
        if provider.key in keys:
            packages |= {each.key: each for each in now.packages if each.key in provider.keys}
    environments = {each.python: each for each in before.environments}
    used = {each.python for each in now.providers if each.key in keys}
    environments |= {each.python: each for each in now.environments if each.python in used}
    merged = Lock(
        environments=tuple(environments.values()),
        packages=tuple(packages[key] for key in sorted(packages)),
        providers=tuple(providers.values()),
        servers=tuple(servers.values()),
    )
    kept = {key for each in merged.providers for key in each.keys}
    return merged.model_copy(update={"packages": tuple(each for each in merged.packages if each.key in kept)})


def list_differences(before: Lock, now: Lock) -> Iterator[str]:
    """Yield a line for each difference of two locks."""
    for environment in now.environments:
        yield from compare_environment(before.environment(environment.python), environment)
    for package in now.packages:
        yield from compare_package(before.package(*package.key), package)
    for package in before.packages:
        if now.package(*package.key) is None:
            yield f"{package.name} {package.version} is not needed any more"
    for provider in now.providers:
        old = before.provider(provider.key)
        if old is None:
            yield f"providers.{provider.key} is new"
        elif old.digest != provider.digest and provider.digest:
            yield f"providers.{provider.key}: {provider.type} has changed"
        for line in compare_data({} if old is None else old.data, provider.data):
            yield f"providers.{provider.key}: {line}"
        yield from compare_tools(f"providers.{provider.key}", {} if old is None else old.tools, provider.tools)
    yield from (f"providers.{each.key} is gone" for each in before.providers if now.provider(each.key) is None)
    for server in now.servers:
        kept = before.server(server.id)
        yield from compare_tools(f"mcp_servers.{server.id}", {} if kept is None else kept.tools, server.tools)
    yield from (f"mcp_servers.{each.id} is gone" for each in before.servers if now.server(each.id) is None)


def list_provider_tools(host: Host) -> Tools:
    """Return the digests of the tools of each provider that runs."""
    return {
        key: {each.name: each.ref.digest for each in generation.catalog.definitions()}
        for key, generation in host.registry.running().items()
    }


async def list_server_tools(host: Host, problems: list[Problem], by: Principal) -> Mapping[str, Mapping[str, str]]:
    """List each enabled server of the file, and return the digests of its tools; failures are added to `problems`."""
    found: dict[str, Mapping[str, str]] = {}
    for view in host.servers.servers(by.tenant):
        if not view.enabled or view.source != "file":
            continue
        try:
            record = await host.servers.discover(by, view.id)
        except ApiError as error:
            problems.append(Problem(code="discovery_failed", message=str(error), path=f"mcp_servers.{view.id}"))
            continue
        if record.error is not None:
            problems.append(Problem(code="discovery_failed", message=record.error, path=f"mcp_servers.{view.id}"))
        found[view.id] = {each.name: each.definition.ref.digest for each in record.tools}
    return found


def _list_data(configuration: Configuration, key: str) -> dict[str, str]:
    """Return the data files of an entry. Raises `FilesUnreadable`."""
    providers = configuration.providers
    try:
        found = providers.loaded[key].type.data_of(providers.wanted[key].entry.settings, providers.document.folder)
    except ProviderError as error:
        raise FilesUnreadable(str(error)) from None
    return dict(sorted(found.items()))


def _warn(package: PackageNow) -> Iterator[str]:
    """Yield what is odd about a package that is to be locked as it is."""
    owner = _owner(package.locked)
    yield from (f"{owner}: {path} differs from its RECORD" for path in package.files.wrong)
    yield from (f"{owner}: no RECORD lists {path}" for path in package.files.unlisted)
    yield from (f"{owner}: {line}" for line in package.misplaced)


def _owner(package: LockedPackage) -> str:
    return f"{package.name} {package.version}"


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
