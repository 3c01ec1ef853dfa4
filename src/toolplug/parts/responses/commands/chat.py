"""`toolplug chat`: a conversation with a model that calls the tools of a host."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, Self, cast

import orjson
import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status
from rich.text import Text

from toolplug.catalog.exact_json import as_object
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import (
    DEFAULT_FILE,
    AgentOption,
    ConfigOption,
    JsonOption,
    SessionOption,
    TenantOption,
    config_file,
    found_config,
    missing_package,
)
from toolplug.cli.output import echo, print_problems, problems_in
from toolplug.cli.running_host import KeyFileOption, check_url, host_problem, read_key
from toolplug.cli.standard_output import answers
from toolplug.errors import ConfigError, HostError, Problem, ToolplugError
from toolplug.parts.responses.items.hosted import WAITING_CALL, ticket_of
from toolplug.parts.responses.request import APPROVALS_FIELD, ITEMS

_SHOWN = 160
_FENCE = "```"
_SEEN_LINES = 5
"""Lines of a block that is not complete yet: a longer status could not be drawn over on a low terminal."""
_SPINNER = 2
"""Columns before the text of a status line."""
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

    def __exit__(self, *_: object) -> None:
        block, self._block = self._block, ""
        self._print_block(block)
        self._end_line()
        self._calls.clear()

    def show(self, event: Json) -> None:
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
        self._wait(self._end_of_block() or "answering")

    def _end_of_block(self) -> str:
        """Return the last lines of what has come of the block, as wide as the terminal: the status line wraps none."""
        width = max(self._console.width - _SPINNER, 1)
        lines = Text(self._block[-_SEEN_LINES * width :]).wrap(self._console, width)
        return "\n".join(line.plain for line in lines[-_SEEN_LINES:])

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
        text = Text(f"calling {', '.join(calls)}" if calls else "thinking")
        text.truncate(max(self._console.width - _SPINNER, 1), overflow="ellipsis")
        self._wait(text.plain)

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


_IN_PROCESS = "toolplug.parts.responses.commands.chat_in_process"
_OVER_HTTP = "toolplug.parts.responses.commands.chat_over_http"
"""Imports packages of the extra `client`, which the help and the other commands do not need."""

_YAML = """\
responses:
  backend:
    base_url: http://127.0.0.1:11434/v1   # any server with the Chat Completions API
    model: small
    api_key: ${MODEL_KEY:-none}"""

Item = Mapping[str, object]

app: typer.Typer = typer.Typer()


class Answering(Protocol):
    """A host that makes responses."""

    def is_ready(self) -> bool:
        """Return whether a model is configured. Raises `ToolplugError` if no message can be sent."""
        ...

    def events(self, request: dict[str, object]) -> Generator[Item]:
        """Yield the events of a new response; closing cancels it. Raises `ToolplugError`."""
        ...


@app.command()
def chat(
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="One message. Without it: those typed, or stdin.", show_default=False),
    ] = None,
    agent: AgentOption = None,
    session: SessionOption = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="Ask this model of the host.", show_default=False)
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Ask the running host there. Default: open the configuration."),
    ] = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Talk to the configured model, and see which tools it calls.

    At a terminal it is a conversation: Ctrl-C cancels an answer, pressed twice or Ctrl-D ends the chat. Otherwise it
    answers one message, with the calls on stderr, and exits 1 without a complete answer. With --json it prints the
    events of the response, one a line. With --url the caller is that of the key, otherwise the operator in a tenant.

    Examples: toolplug chat · toolplug chat 'How many otters?' --agent researcher · toolplug chat --url
    http://127.0.0.1:8080 --session ABCDEFGH
    """
    log_warnings(config)
    file = str(found_config(config) or DEFAULT_FILE)
    try:
        with _host(url, key_file, config, tenant, agent, session) as host:
            if not host.is_ready():
                raise ConfigError([_no_backend(file)])
            talk = Chat(host, model, file, as_json=as_json)
            if message is None and not as_json and sys.stdin.isatty():
                code = talk.converse()
            else:
                code = talk.answer_once(sys.stdin.read() if message is None else message)
    except HostError as error:
        raise ConfigError([host_problem(error, file, session or "")]) from None
    raise typer.Exit(code)


class Chat:
    """One conversation. Each message continues the last complete answer."""

    def __init__(self, host: Answering, model: str | None, config: str, *, as_json: bool) -> None:
        self._host = host
        self._model = model
        self._config = config
        self._as_json = as_json
        self._display = AnswerDisplay()
        self._previous: str | None = None

    def answer_once(self, message: str) -> int:
        """Answer one message and return the exit code. Raises `ToolplugError` and `typer.BadParameter`."""
        if not message.strip():
            raise typer.BadParameter("the message is empty; pass it as an argument or on stdin")
        response = self._ask(message.strip())
        waiting = _approvals(response)
        for request in waiting:
            text = f"{_show_request(request)} waits for approval {ticket_of(str(request['id']))}"
            echo(f"{text}; a chat at a terminal asks for it", err=True)
        return int(bool(waiting) or response["status"] != "completed")

    def converse(self) -> int:
        """Answer the messages typed at a terminal until Ctrl-D, or Ctrl-C twice."""
        import_module("readline")  # `input` then has a history and can be edited
        echo("Type a message. Ctrl-C cancels an answer, Ctrl-D ends the chat.", err=True)
        interrupted = False
        while True:
            try:
                message = input("> ").strip()
                interrupted = False
                if message:
                    self._answer(message)
            except EOFError:
                echo("", err=True)
                return 0
            except KeyboardInterrupt:
                if interrupted:
                    echo("", err=True)
                    return 0
                interrupted = True
                echo("\ncancelled; Ctrl-C again ends the chat", err=True)

    def _answer(self, message: str) -> None:
        """Answer a message, and ask about the calls in it that wait for approval."""
        given: str | list[Item] = message
        asked: set[str] = set()
        try:
            while requests := _approvals(self._ask(given)):
                given = [decision for request in requests if (decision := _decision(request, asked)) is not None]
                if not given:
                    return
        except HostError as error:
            print_problems([host_problem(error, self._config)], as_json=False)
        except ToolplugError as error:
            print_problems(problems_in(error), as_json=False)

    def _ask(self, given: str | Sequence[Item]) -> Item:
        """Show the answer to a message as it is made, and return the response. Raises `ToolplugError`."""
        request: dict[str, object] = {"input": given, "stream": True, "metadata": {APPROVALS_FIELD: ITEMS}}
        if self._model is not None:
            request["model"] = self._model
        if self._previous is not None:
            request["previous_response_id"] = self._previous
        response: Item = {"status": "cancelled", "output": []}
        with closing(self._host.events(request)) as events, nullcontext() if self._as_json else self._display:
            for event in events:
                self._show(event)
                if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
                    response = cast("Item", event["response"])
        if response["status"] in ("completed", "incomplete"):
            self._previous = str(response["id"])
        return response

    def _show(self, event: Item) -> None:
        if self._as_json:
            echo(orjson.dumps(event).decode())
        else:
            self._display.show(event)


def _host(
    url: str | None, key_file: Path | None, config: Path | None, tenant: str, agent: str | None, session: str | None
) -> AbstractContextManager[Answering]:
    if url is None:
        opened = import_module(_IN_PROCESS).open_chat_host(config_file(config), tenant, agent, session)
    else:
        check_url(url)
        try:
            over_http = import_module(_OVER_HTTP)
        except ModuleNotFoundError as error:
            raise missing_package("chat --url", error, "client") from None
        opened = over_http.connect_to_host(url, read_key(key_file), agent, session)
    return cast("AbstractContextManager[Answering]", opened)


def _no_backend(file: str) -> Problem:
    message = f"there is no model to ask; add these lines to {file}:\n\n{_YAML}\n"
    return Problem(code="no_backend", message=message, path="responses")


def _approvals(response: Item) -> list[Item]:
    """Return the calls of a response that wait for approval."""
    output = cast("list[Item]", response["output"])
    return [item for item in output if item["type"] == "mcp_approval_request"]


def _show_request(request: Item) -> str:
    """Return the call of a request as text; of a script the one at which it waits, and the script."""
    given = request["arguments"]
    shown = f"{request['name']} {given if isinstance(given, str) else json.dumps(given)}"
    inner = as_object(request.get(WAITING_CALL))
    if not inner:
        return shown
    return f"{inner['tool']} {json.dumps(inner.get('arguments'))} (line {inner.get('line')} of {shown})"


def _decision(request: Item, asked: set[str]) -> Item | None:
    """Ask about a call at the terminal; None leaves it undecided. `asked` has the tickets asked about before."""
    ticket = ticket_of(str(request["id"]))
    if ticket in asked:
        echo(f"this key may not decide it; toolplug approvals approve {ticket} does, then repeat", err=True)
    asked.add(ticket)
    answer = input(f"Approve {_show_request(request)}? [y/n, Enter: later] ").strip().lower()
    if answer not in ("y", "yes", "n", "no"):
        echo("left undecided", err=True)
        return None
    return {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": answer.startswith("y"),
    }
