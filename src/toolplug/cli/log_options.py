"""What the command line says of the log: the options `-v`, `--log-level` and `--debug` of every command."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand, TyperGroup

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the command line says of the log. `level` is the name of one, empty where it names none."""

    verbosity: int = 0
    level: str = ""
    debug: bool = False

    def level_from(self, usual: int) -> int:
        """The level to log from, where the command's own is the usual one."""
        if self.level:
            return logging.getLevelNamesMapping()[self.level.upper()]
        return logging.DEBUG if self.debug else max(usual - 10 * self.verbosity, logging.DEBUG)


_NOTHING_SAID = LogOptions()
_options: ContextVar[LogOptions] = ContextVar("toolplug_log_options", default=_NOTHING_SAID)


def _more(count: int) -> None:
    _options.set(replace(_options.get(), verbosity=count))


def _from_level(level: Level | None) -> None:
    _options.set(replace(_options.get(), level=level or ""))


def _with_traces(debug: bool) -> None:
    _options.set(replace(_options.get(), debug=debug))


def _every_command(
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            callback=_more,
            expose_value=False,
            show_default=False,
            help="Log more; -vv logs still more.",
        ),
    ] = 0,
    log_level: Annotated[
        Level | None,
        typer.Option("--log-level", callback=_from_level, expose_value=False, help="Log from this level on."),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=_with_traces,
            expose_value=False,
            help="Log everything, print the whole trace of a crash, and keep it for `toolplug why`.",
        ),
    ] = False,
) -> None:
    """The options of every command."""


def add_log_options(command: object) -> None:
    """Give a command, or every command of a group, the options `-v`, `--log-level` and `--debug`."""
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            add_log_options(inner)
    elif isinstance(command, TyperCommand):
        donor = typer.Typer(add_completion=False)
        donor.command()(_every_command)
        params = typer.main.get_command(donor).params
        command.params.extend(param for param in params if param.name != "help")


def reset_log_options() -> None:
    """Forget what an earlier command line of this process said."""
    _options.set(_NOTHING_SAID)


def log_options() -> LogOptions:
    """What the command line that runs says."""
    return _options.get()
