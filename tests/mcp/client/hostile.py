"""A server on standard input and output that is sane but for one thing, which its first argument names.

Started as a script, with the standard library only, so that it is there at once. It speaks the handshake era.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote

FRAME = 6 * 1024 * 1024
TOOLS = [
    {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}},
    {"name": "other", "description": "Does nothing.", "inputSchema": {"type": "object"}},
]
OFFERS = {
    "prompts": [{"name": "ask", "arguments": [{"name": "what"}]}],
    "resources": [{"uri": "odd://one", "name": "one"}],
    "resourceTemplates": [{"uriTemplate": "odd://by/{name}", "name": "by"}],
}
Message = dict[str, object]


def put(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def say(message: Message) -> None:
    put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request: Message, result: object) -> None:
    say({"id": request["id"], "result": result})


def echoed(request: Message) -> Message:
    return {"content": [{"type": "text", "text": json.dumps(request["params"]["arguments"])}]}  # pyright: ignore


def nested(depth: int) -> Message:
    value: Message = {"type": "object"}
    for _ in range(depth):
        value = {"properties": {"a": value}}
    return value


def changed() -> None:
    say({"method": "notifications/tools/list_changed"})


def answered(request: Message) -> None:
    """What a sane server does with a request."""
    match request["method"]:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            capabilities: Message = {"tools": {"listChanged": True}}
            if sys.argv[1].startswith("offers"):
                capabilities |= {"prompts": {}, "resources": {}, "completions": {}}
            answer(request, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
        case "tools/list":
            answer(request, {"tools": TOOLS})
        case "tools/call":
            answer(request, echoed(request))
        case "prompts/list" | "resources/list" | "resources/templates/list" if sys.argv[1].startswith("offers"):
            answer(request, OFFERS)
        case "prompts/get" | "resources/read" if sys.argv[1].startswith("offers"):
            uri = request["params"].get("uri", "a:b")  # pyright: ignore
            answer(request, {"messages": [], "contents": [{"uri": uri, "text": "fine"}]})
        case "completion/complete" if sys.argv[1].startswith("offers"):
            answer(request, {"completion": {"values": ["fine"]}})
        case method:
            say({"id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}})


def for_ever(data: bytes) -> None:
    while True:
        put(data)


def repeated(data: bytes, times: int) -> Callable[[], None]:
    return lambda: put(data * times)


def never() -> None:
    while True:
        time.sleep(60)


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def forked(report: str, *, apart: bool = False) -> None:
    """A grandchild that keeps our pipes, or leaves our session as well; its id is in the file."""
    sleeping = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    Path(report).write_text(str(subprocess.Popen(sleeping, start_new_session=apart).pid))


def forked_apart(report: str) -> None:
    forked(report, apart=True)


def sloppy_list(request: Message) -> None:
    tools = [*TOOLS, {"name": 7}, "tool", None, {"inputSchema": []}, {"name": "odd", "inputSchema": {"type": 3}}]
    answer(request, {"tools": tools, "_meta": {}, "surplus": 1})


def with_header(name: str) -> Message:
    """A tool whose argument goes in an HTTP header."""
    properties = {"where": {"type": "string", "x-mcp-header": name}}
    return {"name": f"in {name}", "inputSchema": {"type": "object", "properties": properties}}


COMPLETE: Message = {"resultType": "complete", "cacheScope": "private"}


def sized(size: int) -> Callable[[Message], None]:
    def write(request: Message) -> None:
        head = json.dumps(
            {"jsonrpc": "2.0", "id": request["id"], "result": {"content": [{"type": "text", "text": ""}]}}
        )
        put(head.replace('"text": ""', f'"text": "{"x" * (size - len(head))}"').encode() + b"\n")

    return write


def progressed(request: Message) -> None:
    token = request["params"]["_meta"]["progressToken"]  # pyright: ignore
    for step in (1, 2):
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 2}})
    answered(request)


def unreadable(request: Message, value: bytes) -> None:
    """Answers with a text block of this JSON; of two calls at once only the first, the other as a sane server does."""
    if request["params"]["name"] == "other":  # pyright: ignore
        answered(request)
        return
    put(
        b'{"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": %b}]}, "id": %d}\n'
        % (value, request["id"])
    )


def nameless(request: Message, line: bytes) -> None:
    """Answers nobody, but for one call with a line that names no request."""
    if request["params"]["name"] == "echo":  # pyright: ignore
        put(line)


def counted(request: Message) -> None:
    """Says which requests it was told to forget."""
    answer(request, {"content": [{"type": "text", "text": json.dumps(CANCELLED)}]})


CANCELLED: list[object] = []


def at_lists(result: Callable[[Message], Message]) -> dict[str, Callable[[Message], None]]:
    """The same at each list of offers."""
    lists = ("prompts/list", "resources/list", "resources/templates/list")
    return dict.fromkeys(lists, lambda request: answer(request, result(request)))


def at_requests(odd: Callable[[Message], None]) -> dict[str, Callable[[Message], None]]:
    """The same at each request for what is offered."""
    return dict.fromkeys(("prompts/get", "resources/read", "completion/complete"), odd)


BEFORE: dict[str, Callable[..., None]] = {
    "dies at start": lambda: sys.exit(3),
    "says why": lambda: (sys.stderr.write("the token s3cret-value\x1b[31m is wrong\n"), sys.exit(1)),
    "mute": never,
    "floods stderr": lambda: os.write(2, b"noise " * 20) and None,
    "stubborn": stubborn,
    "forks": forked,
    "forks apart": forked_apart,
}
"""What is done before the first request is read; those that `AT` does not name then behave."""

ODD_NEWS = b"".join(
    json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}).encode() + b"\n"
    for method, params in (
        ("progress", {"progressToken": None, "progress": 1}),
        ("progress", {}),
        ("resources/updated", {"uri": 5}),
        ("tools/list_changed", {"_meta": 5}),
    )
)
"""Notifications whose parameters cannot be read."""

Odd = Callable[[Message], None]
AT: dict[str, dict[str, Odd]] = {
    "dies at discover": {"server/discover": lambda _: sys.exit(4)},
    "dies at initialize": {"server/discover": lambda _: sys.exit(4), "initialize": lambda _: sys.exit(5)},
    "dies at list": {"tools/list": lambda _: sys.exit(6)},
    "dies at call": {"tools/call": lambda _: sys.exit(7)},
    "dies within an answer": {"tools/call": lambda _: (put(b'{"jsonrpc": "2.0", "id": '), sys.exit(8))},
    "mute at call": {"tools/call": lambda _: None},
    "an endless line": {"tools/call": lambda _: for_ever(b"x" * 65536)},
    "endless lines": {"tools/call": lambda _: for_ever(b'{"jsonrpc": "2.0", "method": "notifications/x"}\n' * 500)},
    "endless garbage": {"tools/call": lambda _: for_ever(b"[]\n" * 20000)},
    "endless odd news": {"tools/call": lambda _: for_ever(ODD_NEWS * 100)},
    "odd news": {"tools/call": lambda request: (put(ODD_NEWS * 300), answered(request))},
    "endless pings": {
        "tools/call": lambda _: for_ever(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n' * 500),
    },
    "a byte order mark": {"tools/call": lambda request: (put(b"\xef\xbb\xbf"), answered(request))},
    "no line end": {
        "tools/call": lambda request: (
            put(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": echoed(request)}).encode()),
            sys.exit(0),
        )
    },
    "some garbage": {"tools/call": lambda request: (put(b"{\n\nnull\n[]\n{}\n" * 100), answered(request))},
    "not UTF-8": {
        "tools/call": lambda request: (put(b'{"jsonrpc": "2.0", "id": "\xff\xfe"}\n' * 9), answered(request))
    },
    "other ids": {
        "tools/call": lambda request: (
            answer({"id": 987}, {"content": []}),
            answer({"id": "x"}, {"content": []}),
            say({"id": None, "error": {"code": 1, "message": "whose?"}}),
            answered(request),
        ),
    },
    "answers twice": {"tools/call": lambda request: (answered(request), answered(request))},
    "sloppy answers": {"tools/call": lambda request: answer(request, {"content": 7, "isError": "perhaps"})},
    "as asked": {"tools/call": lambda request: answer(request, request["params"]["arguments"]["result"])},  # pyright: ignore
    "offers as asked": {
        "prompts/get": lambda request: answer(request, json.loads(request["params"]["arguments"]["result"])),  # pyright: ignore
        "resources/read": lambda request: answer(request, json.loads(unquote(request["params"]["uri"][4:]))),  # pyright: ignore
    },
    "sloppy tools": {"tools/list": sloppy_list},
    "headers that are none": {
        "server/discover": lambda request: answer(
            request, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, **COMPLETE}
        ),
        "tools/list": lambda request: answer(
            request, {"tools": [*TOOLS, with_header("not a token"), with_header("Place")]}
        ),
    },
    "no list": {"tools/list": lambda request: answer(request, {"tools": {"echo": {}}})},
    "refuses": {
        "tools/call": lambda request: say(
            {"id": request["id"], "error": {"code": -32602, "message": "no\x1b[1m\nway"}}
        ),
    },
    "pages for ever": {
        "tools/list": lambda request: answer(request, {"tools": TOOLS, "nextCursor": f"page {request['id']}"}),
    },
    "pages in a circle": {"tools/list": lambda request: answer(request, {"tools": TOOLS, "nextCursor": "again"})},
    "deep": {
        "tools/list": lambda request: answer(
            request, {"tools": [*TOOLS, {"name": "deep", "inputSchema": nested(400)}]}
        ),
        "tools/call": lambda request: answer(request, {"content": [], "structuredContent": nested(400)}),
    },
    "too many tools": {"tools/list": lambda request: answer(request, {"tools": TOOLS * 5001, "nextCursor": "more"})},
    "a storm": {"tools/call": lambda request: ([changed() for _ in range(500)], answered(request))},
    "a full frame": {"tools/call": sized(FRAME)},
    "more than a frame": {"tools/call": sized(FRAME + 1)},
    "progress": {"tools/call": progressed},
    "remembers": {"tools/call": lambda request: counted(request) if request["params"]["name"] == "other" else None},  # pyright: ignore
    "asks back": {
        "tools/call": lambda request: (
            say({"id": "a", "method": "sampling/createMessage", "params": {}}),
            say({"id": "b", "method": "no/such", "params": {}}),
            answered(request),
        ),
    },
    "unreadable UTF-8": {"tools/call": lambda request: unreadable(request, b'"a\xff\xfe"')},
    "a lone surrogate": {"tools/call": lambda request: unreadable(request, b'"\\ud800"')},
    "5,000 levels": {"tools/call": lambda request: unreadable(request, b"[" * 5000 + b"]" * 5000)},
    "half an answer": {"tools/call": lambda request: unreadable(request, b'"cut')},
    "no text": {"tools/call": lambda request: nameless(request, b"\xff\xfe\xfd\n")},
    "no id": {"tools/call": lambda request: nameless(request, b'{"jsonrpc": "2.0", "result": {"content": []}}\n')},
    "prints": {
        "tools/call": lambda request: (
            put(b"starting {'id': 3}\n{'id': 3}\n" + b'{"level": "info", "id": %d}\n' % request["id"]),
            answered(request),
        )
    },
    "reads no more": {"tools/call": lambda _: never()},
    "offers dying at a list": {"prompts/list": lambda _: sys.exit(6)},
    "offers mute": {"prompts/list": lambda _: None},
    "offers pages for ever": at_lists(lambda request: {**OFFERS, "nextCursor": f"page {request['id']}"}),
    "offers in a circle": at_lists(lambda _: {**OFFERS, "nextCursor": "again"}),
    "offers no lists": at_lists(lambda _: {"prompts": {}, "resources": "all", "nextCursor": 7}),
    "offers too much": at_lists(lambda _: {key: value * 1_001 for key, value in OFFERS.items()} | {"nextCursor": "x"}),
    "offers sloppily": at_lists(
        lambda _: {
            key: [*value, 7, None, {}, {"name": 7, "uri": [], "uriTemplate": 1}] for key, value in OFFERS.items()
        }
    ),
    "offers refused": {
        "resources/list": lambda request: say(
            {"id": request["id"], "error": {"code": -32601, "message": "no such method"}}
        )
    },
    "offers and dies": at_requests(lambda _: sys.exit(7)),
    "offers and is mute": at_requests(lambda _: None),
    "offers a flood": at_requests(lambda _: for_ever(b"x" * 65536)),
    "offers 10 MB": at_requests(lambda request: answer(request, {"messages": [], "contents": [], "x": "x" * 10**7})),
    "offers bad types": at_requests(
        lambda request: answer(request, {"messages": 7, "contents": {"uri": 7}, "completion": ["a"]})
    ),
    "offers depth": at_requests(
        lambda request: answer(request, {"messages": [], "contents": [], "_meta": nested(400)})
    ),
    "offers surrogates": at_requests(
        lambda request: put(b'{"jsonrpc": "2.0", "result": {"x": "\\ud800"}, "id": %d}\n' % request["id"])
    ),
    "forks and dies": {"tools/call": lambda _: (forked(sys.argv[2]), sys.exit(0))},
}


def main(mode: str, rest: Iterable[str]) -> None:
    BEFORE.get(mode, lambda *_: None)(*rest if mode.startswith("forks") and mode in BEFORE else ())
    odd = AT.get(mode, {})
    for line in sys.stdin:
        if mode == "floods stderr":
            os.write(2, b"noise " * 2000 + b"\n" + b"x\n" * 20000)
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            CANCELLED.append(message["params"]["requestId"])
        if "id" in message and "method" in message:
            odd.get(message["method"], answered)(message)
    if mode == "stubborn":
        never()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
