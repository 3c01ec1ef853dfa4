"""Questions of a server of 2026-07-28 before it answers a call: the call is repeated with the answers, round by round.

    caller of 2025-11-25  its client is asked while the call waits, and the server is called again
    caller of 2026-07-28  the call ends with the questions; the client repeats it with answers and our `requestState`

Between the rounds of a caller nothing is held open. What the server needs again is in the store, bound to the caller,
the tool and its arguments, and is used once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from secrets import token_hex
from typing import NamedTuple, TypedDict, cast

from toolplug.catalog.call import EMPTY, Ask, CallContext, CannotAsk, NobodyToAsk, ToolResult, ToolStatus, UserAnswer
from toolplug.catalog.definition import ToolRef
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.errors import InvalidJson, StoreConflict, ToolError
from toolplug.parts.mcp.client.connection import InputRequired, McpAnswer, Question, Repetition
from toolplug.runtime.keyed_locks import KeyedLocks
from toolplug.signatures.values import canonical
from toolplug.stores.store import Store, tenant_digest

MAX_ROUNDS = 10
"""Of one call; a server that asks more often is not called again."""
LIFE_S = 300.0
"""Seconds in which a client of 2026-07-28 can repeat its call with the answers."""
MAX_OPEN = 1_000
"""Calls of one tenant that wait for answers."""
MAX_STATE_BYTES = 64 * 1024
"""Of a server's `requestState`."""

ASKED = "input_required"
"""In the metadata of a result: the call has ended with questions."""

_LOG = logging.getLogger("toolplug.mcp")
_PREFIX = "round."  # an approval ticket has no dot
_PAUSE_S = 0.25
_NO_REQUESTS = "the caller's client speaks 2026-07-28, which is not asked while a call runs"


class Round(NamedTuple):
    """The questions with which a call of a server's tool has ended, in the server's words and under its keys.

    * `target`: the digest of the tool and its arguments at the server
    * `state`: the server's `requestState`
    * `number`: 1 for the first round of the call
    """

    target: str
    questions: Mapping[str, Question]
    state: str | None
    number: int


class RoundAnswers(NamedTuple):
    """The answers to a round, by the server's keys."""

    target: str
    answers: Mapping[str, UserAnswer]
    state: str | None
    number: int


class InputRounds:
    """The `Ask` of a client of 2026-07-28: `ending` has the round with which its call ends, if a server asks something.

    `answers` are those that this request brings. They go to the call that has asked, once. `during` asks while the call
    runs, where an extension of the protocol can.
    """

    def __init__(self, answers: RoundAnswers | None = None, during: Ask | None = None) -> None:
        self.ending: list[Round] = []
        self._answers = answers
        self._during = during

    async def __call__(self, question: str, schema: Mapping[str, object]) -> UserAnswer:
        if self._during is None:
            raise CannotAsk(_NO_REQUESTS)
        return await self._during(question, schema)

    def take(self, target: str) -> RoundAnswers | None:
        """Return the answers for this call; None if it has not asked."""
        answers = self._answers
        if answers is None or answers.target != target:
            return None
        self._answers = None
        return answers


class _RoundsOfServer(InputRounds):
    """The rounds of a call, with the name of the server in what is asked while it runs."""

    def __init__(self, rounds: InputRounds, during: Ask) -> None:
        super().__init__(during=during)
        self._rounds = rounds
        self.ending = rounds.ending

    def take(self, target: str) -> RoundAnswers | None:
        return self._rounds.take(target)


def of_server(ask: Ask, ref: ToolRef) -> Ask:
    """Return what asks in the name of the server of this tool."""
    if isinstance(ask, NobodyToAsk):
        return ask

    async def as_server(question: str, schema: Mapping[str, object]) -> UserAnswer:
        return await ask(_name_server(ref, question), schema)

    return _RoundsOfServer(ask, as_server) if isinstance(ask, InputRounds) else as_server


def _name_server(ref: ToolRef, question: str) -> str:
    return f'The MCP server "{ref.source}" asks, for the tool "{ref.name}":\n\n{question}'


async def answered_in_rounds(
    send: Callable[[Repetition | None], Awaitable[McpAnswer]], ask: Ask, ref: ToolRef, arguments: Mapping[str, object]
) -> McpAnswer:
    """Call a server's tool, and again with each answer of the user.

    Raises `CannotAsk`, and `ToolError` if the caller has to repeat its call; `ask`, its `InputRounds`, has the round.
    """
    rounds = ask if isinstance(ask, InputRounds) else None
    target = hashlib.sha256(canonical([*ref, dict(arguments)])).hexdigest()
    given = None if rounds is None else rounds.take(target)
    repetition, number = (None, 0) if given is None else (Repetition(given.answers, given.state), given.number)
    while True:
        try:
            return await send(repetition)
        except InputRequired as required:
            questions, state = required.questions, required.state
        number += 1
        if number > MAX_ROUNDS:
            raise CannotAsk(f"it has asked {MAX_ROUNDS} times already")
        if state is not None and len(state.encode()) > MAX_STATE_BYTES:
            raise CannotAsk(f"its requestState has more than {MAX_STATE_BYTES} bytes")
        if not questions:
            await asyncio.sleep(_PAUSE_S)
        elif rounds is not None:
            named = {key: item._replace(text=_name_server(ref, item.text)) for key, item in questions.items()}
            rounds.ending[:] = [Round(target, named, state, number)]
            raise ToolError("its server asks the user first; the client repeats the call", metadata={"code": ASKED})
        answers = {key: await ask(item.text, item.schema) for key, item in questions.items()}
        repetition = Repetition(answers, state)


def is_round(request_state: str) -> bool:
    """Return whether a `requestState` of a client is that of a round, and not of an approval."""
    return request_state.startswith(_PREFIX)


def round_of(ask: Ask, result: ToolResult) -> Round | None:
    """Return the round with which a call has ended; None if it has another result."""
    asked = result.status is ToolStatus.TOOL_ERROR and result.metadata.get("code") == ASKED
    return ask.ending[0] if asked and isinstance(ask, InputRounds) and ask.ending else None


class _StoredRound(TypedDict):
    call: str
    target: str
    keys: list[str]
    state: str | None
    number: int


class OpenRounds:
    """The rounds of a host whose answers are awaited. `scope` is that of the credentials that the caller brings.

    Every method may raise `StoreError`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keeping: KeyedLocks[str] = KeyedLocks()

    async def keep(
        self, asked: Round, name: str, arguments: object, context: CallContext, scope: str = ""
    ) -> str | None:
        """Keep the round of a caller's call, and return its `requestState`; None if too many are open."""
        kept: _StoredRound = {
            "call": _digest(name, arguments, context, scope),
            "target": asked.target,
            "keys": [*asked.questions],
            "state": asked.state,
            "number": asked.number,
        }
        prefix, code = _key(context, ""), token_hex(16)
        # One after the other: calls that end at once would count none of each other.
        async with self._keeping.of(prefix):
            if len(await self._store.keys(prefix, limit=MAX_OPEN)) >= MAX_OPEN:
                return None
            await self._store.commit(prefix + code, dump_json(kept), expected=0, ttl_s=LIFE_S)
        return _PREFIX + code

    async def take(
        self,
        request_state: str,
        given: Sequence[UserAnswer | None],
        name: str,
        arguments: object,
        context: CallContext,
        scope: str = "",
    ) -> RoundAnswers | None:
        """Return the answers to a kept round of the same call, which is then kept no longer; None if there is none.

        `given` are in the order of the questions; the server asks again for what is missing.
        """
        code = request_state.removeprefix(_PREFIX)
        if not (code.isalnum() and code.isascii()):
            return None
        record = await self._store.read(_key(context, code))
        if record is None:
            return None
        try:
            kept = cast("_StoredRound", load_json(record.value))
            asked = kept["call"] == _digest(name, arguments, context, scope)
        except (InvalidJson, KeyError, TypeError):
            _LOG.error("a record of questions cannot be read: it counts as none, and expires by itself")
            return None
        if not asked:
            return None
        try:
            await self._store.commit(_key(context, code), None, expected=record.revision)
        except StoreConflict:
            return None  # another request has used it
        answers = {key: answer for key, answer in zip(kept["keys"], given, strict=False) if answer is not None}
        return RoundAnswers(kept["target"], answers, kept["state"], kept["number"])


def _key(context: CallContext, code: str) -> str:
    return f"mcp-round/{tenant_digest(context.principal.tenant)}/{code}"


def _digest(name: str, arguments: object, context: CallContext, scope: str) -> str:
    """Return the digest of all that a repetition must have in common."""
    principal = context.principal
    caller = [principal.tenant, principal.subject, context.agent, context.session, *([scope] if scope else [])]
    return hashlib.sha256(canonical([name, arguments or EMPTY, *caller])).hexdigest()
