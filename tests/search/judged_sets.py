"""A judged set of our own: 150 tools of ten domains and 400 prompts in five languages, written before the search of
today was; 60 of the prompts ask for what no tool does.

Tools are described in the language of the prompts; seven of the ten domains have parameters, with the same texts in
many tools, as is usual.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolplug import ToolDefinition

LANGUAGES = ("en", "de", "fr", "es", "zh")
_FOLDER = Path(__file__).with_name("judged")


class Prompt(NamedTuple):
    """What somebody asks for, and the name of the tool that does it; None if there is none."""

    text: str
    tool: str | None


class JudgedSet(NamedTuple):
    """The tools and the prompts of one language."""

    tools: Sequence[ToolDefinition]
    prompts: Sequence[Prompt]

    @property
    def answerable(self) -> Sequence[Prompt]:
        """The prompts that a tool answers."""
        return [prompt for prompt in self.prompts if prompt.tool]

    @property
    def hopeless(self) -> Sequence[Prompt]:
        """The prompts that no tool answers."""
        return [prompt for prompt in self.prompts if not prompt.tool]


def read_judged_set(language: str) -> JudgedSet:
    """Return the judged set of a language."""
    text = (_FOLDER / f"{language}.txt").read_text(encoding="utf-8")
    head, tail = text.split("# tools\n")
    described, asked = tail.split("# prompts\n")
    about = dict(line.split(": ", 1) for line in head.splitlines() if line)
    descriptions = [line for line in described.splitlines() if line]
    names = [line.split() for line in (_FOLDER / "tools.txt").read_text().splitlines() if line and line[0] != "#"]
    tools = [
        ToolDefinition(
            name=name,
            description=description,
            parameters={
                "type": "object",
                "properties": {each: {"type": "string", "description": about[each]} for each in parameters},
            },
        )
        for (name, *parameters), description in zip(names, descriptions, strict=True)
    ]
    prompts = [line.rsplit(" = ", 1) for line in asked.splitlines() if line]
    return JudgedSet(tools, [Prompt(prompt, None if tool == "-" else tool) for prompt, tool in prompts])
