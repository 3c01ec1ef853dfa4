"""`commands.md`: every command with its options, from the parser itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

import typer
from docs.generator.markdown import code, page, sentence, sentences, table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from toolplug.cli.command_line import command_modules, usage_of

_HEAD = """
Results are printed to stdout; logs, progress and problems to stderr. Exit codes: 0 success, 1 a problem (including an
invalid configuration), 2 a usage error. A group without a subcommand lists: `toolplug sessions` is
`toolplug sessions list`. With `--json` an error is
`{"problems": [{file, line, column, path, code, message, hint}]}`. `toolplug --version` prints the version;
`python -m toolplug` is the same command. Every command takes `-h`, `-v` (log more, `-vv` still more), `-q` (log errors
only, and show no progress), `--log-level` (`debug`, `info`, `warning` or `error`) and `--debug` (log everything, print
the whole trace of a crash, and keep it for `toolplug why`).

A command without `--tenant` acts in the tenant that `TOOLPLUG_TENANT` names, else in that of the file
`.toolplug/tenant` next to the configuration, else in `default`. `NO_COLOR` turns colours off.

`toolplug --install-completion` makes the shell complete commands, options, and for `call` and `explain` the names of
tools and their arguments. These come from the list that `toolplug tools` or `toolplug call` kept last in
`$XDG_CACHE_HOME`; completion itself starts nothing.
"""
_EXAMPLES = ("Example: ", "Examples: ")


def commands_page() -> str:
    """The page."""
    return page("Commands", _HEAD, *(_part(name, command) for name, command in every_command()))


def every_command() -> Iterator[tuple[str, TyperCommand]]:
    """Each command with its whole name, in the order of the help."""
    for module in command_modules().values():
        application = typer.Typer()
        application.callback()(_nothing)
        application.add_typer(import_module(module).app)
        yield from _named("toolplug", typer.main.get_command(application))


def _nothing() -> None:
    """Have a group also where there is one command."""


def _named(name: str, command: object) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            yield from _named(f"{name} {inner.name}", inner)
    elif isinstance(command, TyperCommand):
        yield name, command


def _part(name: str, command: TyperCommand) -> str:
    arguments = [item for item in command.params if isinstance(item, TyperArgument)]
    options = [
        item for item in command.params if isinstance(item, TyperOption) and item.name != "help" and not item.hidden
    ]
    usage = " ".join([name, *(usage_of(item) for item in arguments), "[OPTIONS]"])
    prose = [part for part in _paragraphs(command) if not part.startswith(_EXAMPLES)]
    rows = [(code(usage_of(item)), sentence(item.help or "")) for item in arguments]
    rows += [(code(", ".join([*item.opts, *item.secondary_opts])), _says(item)) for item in options]
    return "\n\n".join(
        [
            f"## {name}",
            code(usage),
            *prose,
            table(("argument or option", "description"), rows),
            *_shown_examples(command),
        ]
    )


def _says(option: TyperOption) -> str:
    shown = option.show_default and option.default not in (None, False, "")
    return sentence(option.help or "") + (f" Default: {code(option.default)}." if shown else "")


def examples(command: TyperCommand) -> Sequence[str]:
    """The command lines that the help gives as examples."""
    return [
        line
        for part in _paragraphs(command)
        if part.startswith(_EXAMPLES)
        for line in part.partition(": ")[2].split(" · ")
    ]


def _shown_examples(command: TyperCommand) -> Iterator[str]:
    lines = examples(command)
    if lines:
        yield f"{'Example' if len(lines) == 1 else 'Examples'}: " + " · ".join(map(code, lines))


def _paragraphs(command: TyperCommand) -> list[str]:
    """Return the paragraphs of a help text; one that would be a heading is a line of a file, so it becomes code."""
    parts = (command.help or "").split("\n\n")
    return [code(part.strip()) if part.lstrip().startswith("#") else sentences(part) for part in parts]
