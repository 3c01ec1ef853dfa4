"""What the help of a command gives as an example is a command line that it takes."""

from __future__ import annotations

import shlex

import pytest
from docs.generator.commands import every_command, examples
from typer.core import TyperCommand

COMMANDS = dict(every_command())
EXAMPLES = [line for command in COMMANDS.values() for line in examples(command)]


@pytest.mark.requirement("I2-10-examples-run", "I2-7-help")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_command_gives_an_example(command: TyperCommand) -> None:
    assert examples(command)


@pytest.mark.requirement("I2-10-examples-run", "I2-7-help")
@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_of_a_command_is_one_that_it_takes(line: str) -> None:
    for part in line.split(" && "):
        words = shlex.split(part)
        if words[0] == "toolplug":
            name = next(name for name in COMMANDS if words[: len(name.split())] == name.split())
            COMMANDS[name].make_context(name, words[len(name.split()) :])
