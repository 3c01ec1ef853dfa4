"""Commands of plugins: those that the hook `commands` of the enabled entries of a configuration adds, and of its parts.

They are loaded for a name that is not built in, for the help and for completion. A plugin that fails costs its own
commands only, and is a warning.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import wraps
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import typer
from pydantic import BaseModel
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from toolplug.cli.logs import log_warnings
from toolplug.cli.options import config_file, found_config
from toolplug.cli.output import echo, problems_in
from toolplug.config.nearest import name_hint
from toolplug.crashes import CodeOwner, log_crash, outline_error
from toolplug.errors import ConfigError, InvalidDefinition, NoSuchProvider, Problem, ToolplugError
from toolplug.host.file.configuration import read_parts
from toolplug.host.file.provider_entries import SECTION
from toolplug.host.inspection import tolerated_failures
from toolplug.packages.entry_points import find_installed
from toolplug.packages.loading import IMPORT_S, ProviderType
from toolplug.providers.entry import ProviderEntry
from toolplug.runtime.threads import begun_in_own_thread

M = TypeVar("M", bound=BaseModel)

Command: TypeAlias = TyperCommand | TyperGroup

HOOK = "commands"
PANEL = "Commands of plugins"
_OF_COMMANDS = "plugin_commands"
"""The code of what is wrong with the commands themselves, which only their names and the help make."""


def state_folder(key: str, config: Path | None = None) -> Path:
    """Return the folder in which a plugin keeps its files, `site.state_dir`, for its commands; it may not exist.

    key: the key of its entry under `providers:`
    config: the configuration file; without one `./providers.yaml`, else `$TOOLPLUG_CONFIG`

    Starts nothing. Raises `NoSuchProvider`, and `ConfigError` if the store is in memory or invalid.
    """
    files = config_file(config)
    problems: list[Problem] = []
    configuration = read_parts(files, os.environ, find_installed(), problems).release()
    wrong = [problem for problem in problems if problem.path.partition(".")[0] == "store"]
    if wrong:
        raise ConfigError(wrong)
    if key not in configuration.providers.keys:
        raise NoSuchProvider(key, name_hint(key, configuration.providers.keys))
    folder = configuration.store.state_folder
    if folder is None:
        message = "its plugins keep their files in a temporary folder of the process that serves; no other can see them"
        hint = "keep them with store: sqlite:///./.toolplug/state.db"
        raise ConfigError([Problem(code="store_in_memory", message=message, file=str(files), path="store", hint=hint)])
    return folder / "providers" / key


def read_section(kind: type[M], config: Path | None = None) -> M | None:
    """Return the section of a part as the file has it, for the part's commands; None if the file has none.

    kind: the model of the section
    config: the configuration file; without one `./providers.yaml`, else `$TOOLPLUG_CONFIG`

    Starts nothing. Raises `ConfigError` with every problem of the file.
    """
    problems: list[Problem] = []
    configuration = read_parts(config_file(config), os.environ, find_installed(), problems).release()
    if problems:
        raise ConfigError(problems)
    sections = [part.settings_in(configuration.settings) for part in configuration.parts]
    return next((section for section in sections if isinstance(section, kind)), None)


def add_plugin_commands(group: TyperGroup, given: Sequence[str]) -> None:
    """Add the commands of plugins to the group of the built-in ones; print a warning for each that is left out.

    The configuration is the one that the command line `given` names, else the default one. What is wrong with a
    provider that is not required is said where it may be why a command is unknown. Above the help nothing is printed:
    its last lines say what is left out.
    """
    names_command = any(given[:1]) and not given[0].startswith("-")
    owners: dict[str, str] = dict.fromkeys(group.commands, "is built in")
    try:
        loaded, warnings = _load_plugins(_config(given), optional_too=names_command)
    except (ToolplugError, OSError) as error:
        loaded, warnings = (), list(problems_in(error))
    for plugin in loaded:
        entry = plugin.entry
        path = f"{SECTION}.{entry.key}"
        try:
            commands = _commands(plugin)
        except BaseException as error:  # noqa: BLE001  the plugin's own code
            message = f"{entry.owner}: its commands are left out: {_reason(error, entry.package)}"
            warnings.append(Problem(code=_OF_COMMANDS, message=message, path=path))
            continue
        for name, command in commands.items():
            if name in owners:
                message = f"{entry.owner}: its command {name!r} is left out: the name {owners[name]}"
                warnings.append(Problem(code=_OF_COMMANDS, message=message, path=path))
            else:
                owners[name] = f"is taken by provider {entry.key!r}, which comes first"
                group.add_command(command, name)
    if not names_command:
        group.epilog = "\n\n".join(filter(None, [group.epilog, *_left_out(warnings)]))
        return
    for warning in warnings:
        echo(f"warning: {warning}", err=True)


def _left_out(warnings: Sequence[Problem]) -> Iterator[str]:
    """Yield the last lines of a help that lacks commands, one for all that is wrong with the configuration."""
    if any(warning.code != _OF_COMMANDS for warning in warnings):
        yield "Commands of plugins are missing here, as the configuration has errors: `toolplug check` shows them."
    yield from (f"Missing here: {escape(each.message)}." for each in warnings if each.code == _OF_COMMANDS)


def _config(given: Sequence[str]) -> Path | None:
    """Return the file of `-c FILE`, `-cFILE`, `--config FILE` or `--config=FILE`; None without one."""
    # Read by hand: Typer can parse the line only once the commands that it may name are known.
    words = list(takewhile(lambda word: word != "--", given))
    for place, word in enumerate(words):
        if word in ("-c", "--config"):
            return Path(words[place + 1]) if place + 1 < len(words) else None
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
        if word.startswith("-c") and not word.startswith("--"):
            return Path(word.removeprefix("-c"))
    return None


class _Commanding(NamedTuple):
    """A plugin with commands: its entry, its type, and the modules of the commands of its parts."""

    entry: ProviderEntry
    type: ProviderType
    modules: Sequence[str]


def _load_plugins(config: Path | None, *, optional_too: bool) -> tuple[Sequence[_Commanding], list[Problem]]:
    """Return the enabled plugins with commands, and a problem for each plugin that cannot be loaded.

    optional_too: also for those of providers that are not required

    Raises `ConfigError` for a configuration that cannot be read at all.
    """
    files = found_config(config)
    if files is None:
        return (), []
    problems: list[Problem] = []
    configuration = read_parts(files, os.environ, find_installed(), problems).release()
    loaded = configuration.providers.loaded
    failed: dict[str, Problem] = {}
    for problem in (*problems, *(tolerated_failures(configuration) if optional_too else ())):
        section, _, rest = problem.path.partition(".")
        key = rest.partition(".")[0]
        if section == SECTION and key not in loaded:
            failed.setdefault(key, problem)
    modules: dict[str, list[str]] = {}
    for part in configuration.parts:
        if part.entry is not None:
            modules.setdefault(part.entry.key, []).extend(part.commands.values())
    plugins = [_Commanding(entry, kind, modules.get(key, ())) for key, (entry, kind) in loaded.items()]
    return [item for item in plugins if item.modules or HOOK in item.type.hooks.names], list(failed.values())


def _commands(plugin: _Commanding) -> Mapping[str, Command]:
    """Return the commands that a plugin adds, by name. Blocks, at most about 10 s; raises what the plugin raises."""
    entry, kind, modules = plugin

    def add() -> Mapping[str, Command]:
        app = typer.Typer()
        for function in kind.implementing(HOOK):
            function(app)
        for name in modules:
            app.add_typer(import_module(name).app)
        if app.registered_callback is not None:
            raise InvalidDefinition("`app` takes commands only; put a callback into a `typer.Typer` of your own")
        # `get_group`: with a single command `get_command` would return that command itself.
        made = typer.main.get_group(app).commands
        return {name: command for name, command in made.items() if isinstance(command, Command)}

    # In a thread: an import of a plugin that hangs must not keep the other commands from running.
    outcome = begun_in_own_thread(add, name=f"toolplug-commands-{entry.key}")
    try:
        commands = outcome.result(IMPORT_S)
    except TimeoutError:
        # The plugin has raised a `TimeoutError` of its own.
        if outcome.done():
            raise
        raise InvalidDefinition(f"`commands` has not ended after {IMPORT_S:g} s") from None
    for name, command in commands.items():
        command.rich_help_panel = command.rich_help_panel or PANEL
        _isolate(name, command, entry.owner)
    return commands


def _isolate(name: str, command: object, owner: CodeOwner) -> None:
    """Make a command, or every command of a group, end with one line if it raises something unexpected."""
    if not isinstance(command, Command):
        return
    if isinstance(command, TyperGroup):
        for inner, function in command.commands.items():
            _isolate(f"{name} {inner}", function, owner)
    function = command.callback
    if function is None:
        return
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise InvalidDefinition(f"the command {name!r} is `async def`; write it as `def`, with asyncio.run in it")

    @wraps(function)
    def run_isolated(*arguments: object, **options: object) -> object:
        log_warnings(None)
        try:
            return function(*arguments, **options)
        except (typer.TyperException, typer.Exit, typer.Abort, ToolplugError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  the plugin's own code
            log_crash(f"the command {name!r}", error, owner)
            raise typer.Exit(1) from None

    command.callback = run_isolated


def _reason(error: BaseException, package: str) -> str:
    return str(error) if isinstance(error, InvalidDefinition) else f"`{HOOK}` raised {outline_error(error, package)}"
