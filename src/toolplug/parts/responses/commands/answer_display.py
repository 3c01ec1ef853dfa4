"""Shows an answer while it is made: its text on stdout, as Markdown on a terminal, the tool calls in it on stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, cast

from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status
from rich.text import Text

from toolplug.catalog.text import clean_text, in_one_line
from toolplug.cli.output import echo
from toolplug.cli.standard_output import answers

_SHOWN = 160
_FENCE = "```"
_SEEN_LINES = 5
"""Lines of a block that is not complete yet: a longer status could not be drawn over on a low terminal."""
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_ARGUMENTS = "_arguments.delta"

Json = Mapping[str, object]


class AnswerDisplay:
    """Shows the events of one response after another. On a terminal, a status line says what it waits for.

    The texts of models and tools are shown without control characters. On a terminal a text is shown as it comes, and
    each block, once it is complete, as Markdown without links: an address that a model writes is text.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._calls: dict[object, tuple[float, str, str]] = {}
        self._line_open = False
        self._block = ""

    def __enter__(self) -> Self:
        self._wait("thinking")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, ""
        self._print_block(block)
        self._end_line()
        self._calls.clear()

    def show(self, event: Json) -> None:
        """Show one event."""
        kind = str(event["type"])
        if self._block and kind not in _TEXT:
            block, self._block = self._block, ""
            self._print_block(block)
        if kind in _TEXT:
            self._write(clean_text(str(event["delta"])))
        elif kind == "response.output_item.added":
            self._begin(event["output_index"], cast("Json", event["item"]))
        elif kind.endswith(_ARGUMENTS):
            self._more_arguments(event)
        elif kind == "response.output_item.done":
            self._end(event["output_index"], cast("Json", event["item"]))
        elif kind in ("response.failed", "response.incomplete"):
            self._explain(cast("Json", event["response"]))

    def _write(self, text: str) -> None:
        """Write a piece of text; on a terminal, the blocks that are complete."""
        if not answers().isatty():
            self._stop()
            answers().write(text)
            answers().flush()
            self._line_open = True
            return
        self._block += text
        end = self._block.rfind("\n\n") if "\n" in text else -1
        if end >= 0 and _closes_fences(self._block[:end]):
            complete, self._block = self._block[:end], self._block[end:].lstrip("\n")
            self._print_block(complete)
        self._wait("\n".join(self._block.split("\n")[-_SEEN_LINES:]) or "answering")

    def _print_block(self, text: str) -> None:
        self._stop()
        if text.strip():
            Console(file=answers(), highlight=False).print(Markdown(text, hyperlinks=False))

    def _begin(self, index: object, item: Json) -> None:
        if "name" not in item or item["type"] == "mcp_approval_request":
            return
        self._calls[index] = (time.perf_counter(), str(item["name"]), str(item.get("arguments", "")))
        self._wait_for_calls()

    def _more_arguments(self, event: Json) -> None:
        since, name, arguments = self._calls[event["output_index"]]
        self._calls[event["output_index"]] = (since, name, f"{arguments}{event['delta']}")
        self._wait_for_calls()

    def _end(self, index: object, item: Json) -> None:
        if index not in self._calls:
            self._end_line()
            return
        since, name, arguments = self._calls.pop(index)
        self._stop()
        self._end_line()
        took = (time.perf_counter() - since) * 1000
        failed = item.get("status") == "failed"
        line = Text.assemble(
            ("✗ " if failed else "✓ ", "red" if failed else "green"),
            (clean_text(name), "bold"),
            f" {_short(str(item.get('arguments') or arguments))}",
            (f" {took:.0f} ms", "dim"),
        )
        self._console.print(line)
        output = _short(str(item.get("output") or ""))
        if output:
            self._console.print(Text(f"  {output}", "red" if failed else "dim"))
        self._wait_for_calls()

    def _explain(self, response: Json) -> None:
        self._stop()
        self._end_line()
        error = cast("Json", response["error"] or response["incomplete_details"] or {})
        text = f"{response['status']}: {clean_text(str(error.get('message') or error.get('reason')))}"
        self._console.print(Text(text, "red"))

    def _wait_for_calls(self) -> None:
        calls = [f"{clean_text(name)} {_short(arguments)}".rstrip() for _, name, arguments in self._calls.values()]
        self._wait(f"calling {', '.join(calls)}" if calls else "thinking")

    def _wait(self, text: str) -> None:
        """Show on the status line what is waited for."""
        if not (self._console.is_terminal and answers().isatty()):
            return
        self._end_line()
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(Text(text, "dim"))

    def _stop(self) -> None:
        """Remove the status line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _end_line(self) -> None:
        if self._line_open:
            echo()
            self._line_open = False


def _closes_fences(text: str) -> bool:
    """Return whether every block of code in the text has its end there."""
    return sum(line.lstrip().startswith(_FENCE) for line in text.split("\n")) % 2 == 0


def _short(text: str) -> str:
    line = in_one_line(clean_text(text))
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
