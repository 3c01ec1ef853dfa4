"""A host whose providers stay off, for work on its MCP servers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolplug.errors import Problem
from toolplug.host.file.config_files import Source
from toolplug.host.file.configuration import Configuration, read_configuration
from toolplug.host.host import Host
from toolplug.providers.entry_points import Installed

_REASON = "this command starts no provider"


def open_servers_only(config: Source, problems: list[Problem], *, environ: Mapping[str, str] | None = None) -> Host:
    """A host like that of `open_host`, beside the process that serves, which starts no provider.

    What is wrong with entries of `mcp_servers` is added to `problems` when it is entered; it runs without them. Every
    other problem is raised as `ConfigError`.
    """

    def read(
        source: Source, environ: Mapping[str, str], installed: Installed, coded: Mapping[str, str]
    ) -> Configuration:
        configuration = read_configuration(source, environ, installed, coded)
        problems.extend(configuration.servers.problems)
        entries = configuration.providers
        off = {key: entries.switched_off(key, _REASON, "") for key in entries.wanted}
        return replace(configuration, providers=replace(entries, wanted=off))

    return Host(config, environ, read, serving=False)
