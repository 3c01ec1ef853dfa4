"""The laws of `toolplug.ToolExecutor`, which make executors interchangeable for a host.

async def test_my_executor_keeps_the_laws():
    await check_executor(mine, calls={"web.search": {"query": "otters"}}, change=mine.reload)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.catalog import EMPTY_CATALOG, CatalogDiff
from toolplug.execution.executor import ToolExecutor
from toolplug.testing.broken_rule import BrokenRule, raise_broken

NO_TOOL = "no_tool_has_this_name"
Change = Callable[[], Awaitable[object]]

_UNAVAILABLE = frozenset({ToolStatus.UNAVAILABLE, ToolStatus.DENIED, ToolStatus.INVALID_ARGUMENTS})
# Text that is no JSON, bytes that are no text, JSON that is no object, a key that is no text, and a number.
_NO_ARGUMENTS: tuple[object, ...] = ("not json", b"\xff", "[1]", "null", {1: 2}, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    executor: ToolExecutor
    calls: Mapping[str, Mapping[str, object]]
    context: CallContext
    within_s: float

    async def call(
        self, name: str, arguments: object, *, context: CallContext | None = None
    ) -> ToolResult | BaseException | None:
        """Return the result, the exception that escaped, or None if there is neither in time."""
        call = ToolCall("law", name, arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        task = asyncio.create_task(_outcome(self.executor, call, context or self.context))
        done, _ = await asyncio.wait({task}, timeout=self.within_s)
        if done:
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=self.within_s)
        return None


async def check_executor(
    executor: ToolExecutor,
    *,
    calls: Mapping[str, Mapping[str, object]],
    change: Change | None = None,
    context: CallContext | None = None,
    within_s: float = 5.0,
) -> None:
    """Raise `ContractBroken` with every law that the executor breaks.

    `calls`: for some listed names, arguments with which they succeed. `change` changes the catalog; without it the law
    of `subscribe` is not checked. `within_s`: how long one call may take, in seconds.
    """
    examined = _Examined(executor=executor, calls=calls, context=context or CallContext(), within_s=within_s)
    broken = [*_listing(examined), *await _calls(examined), *await _unknown(examined), *await _escapes(examined)]
    if change is not None:
        broken += await _change(examined, change)
    raise_broken(broken)


def _listing(examined: _Examined) -> list[BrokenRule]:
    """Check that `can_execute` agrees with the catalog, by both names, and that the catalog is one object."""
    executor, catalog = examined.executor, examined.executor.catalog
    broken: list[BrokenRule] = []
    if executor.catalog is not catalog:
        fix = "keep the catalog, and swap it when it changes"
        broken.append(BrokenRule("same-catalog", "catalog", "is another object at each reading", fix))
    for definition in catalog.definitions():
        broken += [
            BrokenRule("can-execute", f"can_execute({name!r})", "is false for a listed tool", "ask the catalog")
            for name in dict.fromkeys((definition.name, definition.wire))
            if not executor.can_execute(name)
        ]
    broken += [
        BrokenRule("can-execute", f"can_execute({name!r})", "is true and nothing is listed so", "ask the catalog")
        for name in _list_unlisted(examined)
        if executor.can_execute(name)
    ]
    broken += [
        BrokenRule("examples", f"example {name!r}", "is not listed", f"it lists {', '.join(catalog) or 'nothing'}")
        for name in examined.calls
        if name not in catalog
    ]
    return broken


async def _calls(examined: _Examined) -> list[BrokenRule]:
    """Check that listed tools can be called by both names, and that results have the id and name of the call."""
    broken: list[BrokenRule] = []
    catalog = examined.executor.catalog
    for name, arguments in examined.calls.items():
        wire = catalog[name].definition.wire if name in catalog else name
        for used in dict.fromkeys((name, wire)):
            result = await examined.call(used, arguments)
            if not isinstance(result, ToolResult) or result.is_error:
                fix = "look the name up in the catalog and run its plan"
                broken.append(BrokenRule("calls", f"call of {used!r}", f"does not succeed: {_describe(result)}", fix))
            elif (result.call_id, result.name) != ("law", used):
                what = f"answers as call {result.call_id!r} of {result.name!r}"
                broken.append(BrokenRule("calls", f"call of {used!r}", what, "answer with the call's id and name"))
    return broken


async def _unknown(examined: _Examined) -> list[BrokenRule]:
    """Check that other names are unknown tools, whatever the arguments, and unavailable tools answer as such."""
    broken: list[BrokenRule] = []
    unavailable = examined.executor.catalog.unavailable or EMPTY_CATALOG
    for name in _list_unlisted(examined):
        is_unknown = unavailable.find(name) is None
        for arguments in ("{}", "not json"):
            result = await examined.call(name, arguments)
            status = result.status if isinstance(result, ToolResult) else None
            if is_unknown and status is not ToolStatus.UNKNOWN_TOOL:
                what, fix = f"is no unknown tool: {_describe(result)}", "answer unknown_tool before anything else"
                broken.append(BrokenRule("unknown-tool", f"call of {name!r}", what, fix))
            elif not is_unknown and status not in _UNAVAILABLE:
                what, fix = (
                    f"is not said to be away: {_describe(result)}",
                    "run the plan that it has among what is away",
                )
                broken.append(BrokenRule("away", f"call of {name!r}", what, fix))
    return broken


async def _escapes(examined: _Examined) -> list[BrokenRule]:
    """Check that invalid arguments and a passed deadline are results; only the caller's cancellation is raised."""
    broken: list[BrokenRule] = []
    for name, example in examined.calls.items():
        for arguments in _NO_ARGUMENTS:
            result = await examined.call(name, arguments)
            if not isinstance(result, ToolResult) or result.status is not ToolStatus.INVALID_ARGUMENTS:
                fix = "decode and validate before the tool is reached, and raise nothing"
                where = f"call of {name!r} with {arguments!r}"
                broken.append(BrokenRule("no-escape", where, f"is not refused: {_describe(result)}", fix))
        past = examined.context._replace(deadline=asyncio.get_running_loop().time() - 1)
        late = await examined.call(name, example, context=past)
        if not isinstance(late, ToolResult) or late.status is not ToolStatus.TIMEOUT:
            fix = "count the deadline from entry"
            where = f"call of {name!r} past its deadline"
            broken.append(BrokenRule("deadline", where, f"does not time out: {_describe(late)}", fix))
        broken += await _check_cancelled(examined, name, example)
    return broken


async def _check_cancelled(examined: _Examined, name: str, example: Mapping[str, object]) -> list[BrokenRule]:
    """Check that a caller that is cancelled during a call gets its own `CancelledError` at once."""
    task = asyncio.create_task(examined.executor.execute(ToolCall("law", name, example), examined.context))
    # One turn, so that the call has begun; one that is answered by then cannot be cancelled.
    await asyncio.sleep(0)
    if task.done():
        return []
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=examined.within_s)
    if done and (task.cancelled() or task.exception() is None):
        return []
    what = f"raises {task.exception()!r}" if done else "goes on"
    return [BrokenRule("cancellation", f"cancelled call of {name!r}", what, "let the caller's CancelledError through")]


async def _change(examined: _Examined, change: Change) -> list[BrokenRule]:
    """Check that listeners get each difference once, also after one that raises, and none after they unsubscribe."""
    executor = examined.executor
    received: list[CatalogDiff] = []
    stopped: list[CatalogDiff] = []

    def raises(diff: CatalogDiff) -> None:
        raise LookupError("a listener of the check raises on purpose")

    stops = [executor.subscribe(raises), executor.subscribe(received.append)]
    executor.subscribe(stopped.append)()
    before = executor.catalog
    await change()
    expected = before.diff(executor.catalog)
    broken: list[BrokenRule] = []
    if not expected:
        broken.append(BrokenRule("subscribe", "change", "changes nothing in the catalog", "give another change="))
    elif received != [expected]:
        fix = "publish each swap of the catalog once"
        broken.append(BrokenRule("subscribe", "subscribe()", f"was told {received!r} of {expected!r}", fix))
    if stopped:
        broken.append(BrokenRule("subscribe", "unsubscribe()", "is still called", "forget the listener"))
    for stop in stops:
        stop()
        stop()
    return broken


def _list_unlisted(examined: _Examined) -> list[str]:
    """Return names that are not listed: unknown, empty, dotted, listed ones in another spelling, unavailable ones."""
    catalog = examined.executor.catalog
    unavailable = catalog.unavailable or EMPTY_CATALOG
    tried = [
        NO_TOOL,
        "",
        ".x",
        "fs.",
        f"fs.{NO_TOOL}",
        *(f"{name} " for name in catalog),
        *(name.upper() for name in catalog),
        *unavailable,
        *(definition.wire for definition in unavailable.definitions()),
    ]
    return [name for name in tried if catalog.find(name) is None]


async def _outcome(executor: ToolExecutor, call: ToolCall, context: CallContext) -> ToolResult | BaseException:
    try:
        return await executor.execute(call, context)
    except BaseException as error:  # noqa: BLE001  any exception that escapes is reported
        return error


def _describe(result: ToolResult | BaseException | None) -> str:
    if result is None:
        return "no answer in time"
    return f"{result.status}: {result.output}" if isinstance(result, ToolResult) else repr(result)
