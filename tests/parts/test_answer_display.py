"""How `toolplug chat` shows an answer on a terminal and off one."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from toolplug.parts.responses.commands import chat
from toolplug.parts.responses.commands.chat import AnswerDisplay

ANSWER = "# Tea\n\n* **two** euros\n\n```py\nx = 1\n\ny = 2\n```\n\nsee [here](https://x.example)"


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def pieces(text: str, size: int = 7) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def shown_on(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the screen shows of the answer; each line without what follows it."""
    monkeypatch.setattr(chat, "answers", lambda: screen)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    with AnswerDisplay() as display:
        for piece in pieces(ANSWER):
            display.show({"type": "response.output_text.delta", "delta": piece})
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines())


@pytest.mark.requirement("I33-markdown")
def test_on_a_terminal_an_answer_is_markdown_without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on(Screen(terminal=True), monkeypatch)
    assert "**" not in shown
    assert "```" not in shown
    assert " • two euros" in shown
    assert "x = 1\n\n y = 2" in shown
    assert "https://x.example" in shown
    assert "\x1b]8" not in shown


def test_off_a_terminal_it_is_the_text_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(Screen(terminal=False), monkeypatch) == ANSWER
