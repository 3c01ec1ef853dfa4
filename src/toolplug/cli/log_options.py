"""The options for the log that every command has: `-v`, `-q`, `--log-level` and `--debug`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperOption

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options as given: the number of `-v`, the name of a level or None, whether `--debug` and `-q` are set."""

    verbose: int = 0
    quiet: bool = False
    log_level: Level | None = None
    debug: bool = False

    def level_from(self, usual: int) -> int:
        """Return the level to log from; `usual` is that of the command without these options."""
        if self.log_level is not None:
            return logging.getLevelNamesMapping()[self.log_level.upper()]
        if self.debug:
            return logging.DEBUG
        return max(logging.ERROR if self.quiet else usual - 10 * self.verbose, logging.DEBUG)


_DEFAULTS = LogOptions()
_options: ContextVar[LogOptions] = ContextVar("toolplug_log_options", default=_DEFAULTS)


def _set(param: typer.CallbackParam, value: Any) -> None:
    _options.set(replace(_options.get(), **{str(param.name): value}))


def _every_command(
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            callback=_set,
            expose_value=False,
            show_default=False,
            help="Log more; -vv logs even more.",
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        typer.Option(
            "-q",
            "--quiet",
            callback=_set,
            expose_value=False,
            help="Log errors only, and show no progress.",
        ),
    ] = False,
    log_level: Annotated[
        Level | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            callback=_set,
            expose_value=False,
            help="Log from this level on: debug, info, warning or error.",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            callback=_set,
            expose_value=False,
            help="Log everything, print the whole trace of a crash, and keep it for `toolplug why`.",
        ),
    ] = False,
) -> None:
    """Declare the options of every command."""


def add_log_options(command: TyperCommand) -> None:
    known = {param.name for param in command.params}
    command.params.extend(param for param in _params() if param.name not in known)


@cache
def _params() -> Sequence[TyperOption]:
    """Return the options, which all commands share: Typer takes a hundredth of a second to make them."""
    donor = typer.Typer(add_completion=False)
    donor.command()(_every_command)
    params = typer.main.get_command(donor).params
    return [param for param in params if isinstance(param, TyperOption) and param.name != "help"]


def reset_log_options() -> None:
    """Reset the options, which an earlier command line of this process may have set."""
    _options.set(_DEFAULTS)


def log_options() -> LogOptions:
    """Return the options of the running command line."""
    return _options.get()
