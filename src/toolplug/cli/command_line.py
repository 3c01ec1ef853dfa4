"""Runs a command line: imports only the command that it names, and converts errors to exit codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import distributions, version
from itertools import pairwise
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from toolplug.cli.log_options import add_log_options, reset_log_options
from toolplug.cli.output import echo, print_problems, problems_in
from toolplug.cli.standard_output import packages_print_to_stderr
from toolplug.config.units import own_text, right_shape
from toolplug.errors import Problem, ToolplugError

PANELS: Mapping[str, tuple[str, ...]] = {
    "Write": ("init", "new-provider", "env", "lock", "bundle", "keys", "key", "schema", "dashboard"),
    "Run": ("serve", "dev", "worker", "call", "chat", "eval", "discover", "connect"),
    "Look": ("providers", "plugins", "doctor", "check", "tools", "explain", "why", "diff", "sessions"),
    "Decide": ("approvals", "grants", "connections", "agents", "toolsets", "notes"),
}
"""The groups of the help, and the commands of each in their order, those of parts included."""

NAMES = tuple(name for names in PANELS.values() for name in names)

PARTS = "toolplug.host.file.part_sections"
"""The module that knows the parts, which most commands do not need."""

_OF_PARTS = frozenset(("approvals", "chat", "connect", "connections", "discover", "eval", "grants", "sessions"))

COMMANDS = {
    **{name: f"toolplug.cli.{name.replace('-', '_')}" for name in NAMES if name not in _OF_PARTS},
}
"""The module of each command of the host itself. Each has a Typer application `app`."""

PLUGIN_COMMANDS = "toolplug.cli.plugin_commands"
"""The module that adds the commands of plugins, which takes long to import."""

LISTING = frozenset(("sessions", "toolsets", "agents", "notes", "approvals", "grants", "connections"))
"""Groups whose default command is `list`."""

HELP = ("-h", "--help")
VERSION = "--version"
WRONG_COMMAND_LINE = 2
_FILES = (".py", ".yaml", ".yml")
_CONFIG = ("-c", "--config")

_COMPLETION = "_TOOLPLUG_COMPLETE"


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    given = _with_list(arguments)
    as_json = "--json" in given
    reset_log_options()
    try:
        with packages_print_to_stderr() if _answers(given) else nullcontext():
            # Without `standalone_mode` Typer raises its errors instead of printing them and ending the process.
            code: object = _imported_command(given)(given, prog_name="toolplug", standalone_mode=False)
    except typer.TyperException as error:
        return _wrong_command_line(error, given, as_json)
    # Ctrl-C, or the end of the input at a question.
    except typer.Abort:
        return 1
    # The reader has seen enough, as `head` has: there is nobody to tell.
    except BrokenPipeError:
        return 1
    except (ToolplugError, OSError) as error:
        print_problems(problems_in(error), as_json=as_json)
        return 1
    return code if isinstance(code, int) else 0


def _answers(given: Sequence[str]) -> bool:
    """Return whether our own command prints an answer; the help is Typer's, and commands of plugins print as they do.

    `serve` answers on a port, and on standard output for `--stdio`, where it keeps that apart itself.
    """
    return bool(given) and given[0] in NAMES and given[0] != "serve" and not any(word in HELP for word in given)


def _with_list(given: Sequence[str]) -> Sequence[str]:
    """Insert `list` after the name of a group without a command."""
    group, named = given[:1], given[1:2]
    if LISTING.isdisjoint(group) or any(not word.startswith("-") or word in HELP for word in named):
        return given
    return [*group, "list", *given[1:]]


_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def _imported_command(given: Sequence[str]) -> Callable[..., object]:
    """Import the command that is named, also where the metadata of a foreign package cannot be read.

    The first class of pydantic looks for its plugins in the entry points of all packages, and raises what the worst of
    them makes the parser raise.
    """
    try:
        return _command(given)
    except Exception:
        broken = [] if _NO_PLUGINS in os.environ else [*_unreadable()]
        if not broken:
            raise
        for path, error in broken:
            echo(f"toolplug: warning: {path}: cannot be read ({error}); reinstall its package", err=True)
        # Pydantic reads it when it looks for its plugins, which it does once more after a failure.
        os.environ[_NO_PLUGINS] = "__all__"
        return _command(given)


def _unreadable() -> Iterator[tuple[str, str]]:
    """Yield file and fault of each distribution whose entry points cannot be read."""
    for distribution in distributions():
        try:
            len(distribution.entry_points)
        except Exception as error:  # noqa: BLE001  whatever a foreign file makes the parser raise
            yield f"{getattr(distribution, '_path', '')}/entry_points.txt", type(error).__name__


def _command(given: Sequence[str]) -> Callable[..., object]:
    """Import the command that is named: none for `--version`, all for the help, another name and completion.

    For the help and for a name that is not built in, the commands of plugins are added.
    """
    application = typer.Typer(
        help="Configure, run and serve the tools that language models call.",
        epilog="Begin with `toolplug init`, then `toolplug serve`. Every command has its own --help.",
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": list(HELP)},
    )
    application.callback()(_root)
    completes = _COMPLETION in os.environ
    named = given[0] if given and not completes else ""
    known = COMMANDS if named in COMMANDS or named == VERSION else command_modules()
    wanted = [named] if named in known else () if named == VERSION else known
    for name in wanted:
        module = import_module(known[name])
        application.add_typer(module.app)
    command = typer.main.get_command(application)
    if isinstance(command, TyperGroup):
        _group(command)
    if isinstance(command, TyperGroup) and wanted == known and not completes:
        import_module(PLUGIN_COMMANDS).add_plugin_commands(command, given)
    for each in _every(command):
        if isinstance(each, TyperCommand):
            add_log_options(each)
            # Join the lines of each paragraph of the help, so that it wraps at any width.
            each.help = "\n\n".join(" ".join(part.split()) for part in (each.help or "").split("\n\n"))
        for option in each.get_params(typer.Context(each, help_option_names=list(HELP))):
            if isinstance(option, TyperOption) and (option.is_flag or option.count):
                option.metavar = ""  # else the help has `<bool>` and `<int>` for options that take no value
            elif isinstance(option, TyperArgument):
                _show_as_word(option)
    return command


def usage_of(argument: TyperArgument) -> str:
    """Return an argument as a usage line has it: in brackets if it may be left out."""
    name = argument.metavar or argument.name
    return name if argument.required else f"[{name}]"


def _show_as_word(argument: TyperArgument) -> None:
    """Show a required argument without braces, which elsewhere mean a choice, and no type of Python next to it."""
    argument.get_usage_pieces = lambda ctx: [usage_of(argument)]
    if argument.metavar is not None:
        argument.display_type_rich = lambda ctx: None


def command_modules() -> Mapping[str, str]:
    """Return the module of each command, those of parts included, in the order of the help."""
    parts = import_module(PARTS).built_in()
    known = {**COMMANDS, **{name: module for part in parts for name, module in part.commands.items()}}
    return {**{name: known[name] for name in NAMES if name in known}, **known}


def _group(group: TyperGroup) -> None:
    """Put each command into its group of the help."""
    for panel, names in PANELS.items():
        for name in names:
            command = group.commands.get(name)
            if isinstance(command, TyperCommand | TyperGroup):
                command.rich_help_panel = panel


def _every(command: object) -> Iterator[TyperCommand | TyperGroup]:
    """Yield a command, and every command of a group."""
    if isinstance(command, TyperCommand | TyperGroup):
        yield command
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            yield from _every(inner)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolplug {version('toolplug')}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option(VERSION, callback=_print_version, is_eager=True, help="Show the version and exit.")
]


def _root(print_version: _Version = False) -> None:
    """Make the application a group of commands, even with one command."""


def _file_without_option(given: Sequence[str]) -> str:
    """Return the file that somebody gives as `serve` takes it, to a command that has `-c` for it; empty for none."""
    words = pairwise(given)
    return next((word for before, word in words if word.endswith(_FILES) and before not in _CONFIG), "")


def _in_our_words(error: typer.TyperException) -> str:
    """Return the text of an error; for a value that Pydantic refuses for Typer, as for one of the configuration."""
    text, cause = error.format_message(), error.__cause__
    details: ErrorDetails | None = next(iter(cause.errors()), None) if isinstance(cause, ValidationError) else None
    shape = None if details is None else right_shape(details)
    if details is not None:
        text = text.replace(
            details["msg"], f"should be {shape}, not {details['input']!r}" if shape else own_text(details)
        )
    return text


def _wrong_command_line(error: typer.TyperException, given: Sequence[str], as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    message = _in_our_words(error)
    if message:
        command = context.command_path if context is not None else "toolplug"
        file = _file_without_option(given)
        named = f"a configuration is named by -c {file}; " if file else ""
        problem = Problem(code="wrong_command_line", message=message, hint=f"{named}see {command} --help")
        print_problems([problem], as_json=as_json)
    return WRONG_COMMAND_LINE
