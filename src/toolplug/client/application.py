"""An application that lends its functions to a model as tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import MappingProxyType, TracebackType
from typing import NamedTuple, Self, TypeVar, overload

from pydantic import ValidationError

from toolplug.exports import not_installed

try:
    from httpx2 import AsyncClient
except ModuleNotFoundError as _error:
    raise not_installed(_error, "toolplug.client") from None

from toolplug.client.host_requests import Backoff, HostRequests, base_url
from toolplug.client.session import OpenSession
from toolplug.client.session_requests import RegistrationInfo, create, end
from toolplug.client.tool import Capability, CapabilityType, Environment, Function, Requirement, Tool
from toolplug.errors import HostError
from toolplug.runtime.slips import require_async_with, suggest_options
from toolplug.signatures.annotations import names_around

Lent = TypeVar("Lent", bound=Function)


class _Address(NamedTuple):
    code: str
    token: str


class _Entered(NamedTuple):
    """The state between entering and leaving."""

    address: _Address
    session: OpenSession
    running: asyncio.Task[None]
    stack: AsyncExitStack


_EXPECTED = {
    "plugin_type": "a text, such as 'codap'",
    "environment": "an Environment(version=…)",
    "capabilities": "a list of Capability(type=…)",
}


def _registration(**described: object) -> RegistrationInfo:
    """Return the application's description. Raises `TypeError` with the first argument that is none."""
    try:
        return RegistrationInfo.model_validate(described)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        given = described[name]
        what = f"{type(given).__name__} {given!r:.80}"
        raise TypeError(f"Application: {name} should be {_EXPECTED[name]}, not {what}") from None


@require_async_with
class Application:
    """Lends functions as tools of a session, while it is entered (`async with application`).

    Entering creates a session (or joins one: `joining`) and registers the tools; it raises `HostError` if that fails.
    Calls are then answered in the background, and lost connections are reopened. Leaving cancels running calls and ends
    the session that was created, unless `keep` is set. If the session ended earlier and `serve` did not raise the
    error, leaving raises it. The application can be entered again. While it is entered, its methods must be called on
    the thread of the event loop: elsewhere `add`, `remove` and `replace` raise `RuntimeError` and change nothing.

    ```python
    from toolplug.client import Application

    application = Application("http://127.0.0.1:8080", plugin_type="notes")
    notes = []

    @application.tool
    def add(text: str) -> int:
        "Write a note, and return how many there are."
        notes.append(text)
        return len(notes)

    async def main():
        async with application:  # a host listens there: `toolplug serve`
            print(application.code)  # what callers of the tools name as their session
            await application.serve()
    ```
    """

    @suggest_options
    def __init__(
        self,
        url: str,
        *,
        plugin_type: str,
        api_key: str | None = None,
        capabilities: Sequence[Capability] = (),
        environment: Environment | None = None,
        ttl_s: int | None = None,
        keep: bool = False,
        max_running: int = 16,
        http: AsyncClient | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`url`: where the host is mounted. `plugin_type`: the kind of application, such as `codap`.

        `ttl_s`: how many seconds the session outlives the application's last sign. `keep`: do not end the session on
        leaving, so that a later run can join it. `max_running`: how many functions may run at once. `http`: your own
        client, for certificates or a proxy; it is not closed. Raises `TypeError` for a description of another type.
        """
        self._url = base_url(url)
        self._registration = _registration(
            plugin_type=plugin_type,
            capabilities=capabilities,
            environment=Environment() if environment is None else environment,
        )
        self._api_key = api_key
        self._ttl_s = ttl_s
        self._keeps = keep
        self._max_running = max_running
        self._http = http
        self._backoff = backoff or Backoff()
        self._joined: _Address | None = None
        self._tools: dict[str, Tool] = {}
        self._entered: _Entered | None = None
        self._reported = False

    @classmethod
    def joining(
        cls,
        url: str,
        *,
        code: str,
        token: str,
        plugin_type: str,
        capabilities: Sequence[Capability] = (),
        environment: Environment | None = None,
        max_running: int = 16,
        http: AsyncClient | None = None,
        backoff: Backoff | None = None,
    ) -> Self:
        """Return an application that continues a session of an earlier run, and does not end it on leaving.

        It sends only the difference from the tools that the session has.
        """
        application = cls(
            url,
            plugin_type=plugin_type,
            capabilities=capabilities,
            environment=environment,
            max_running=max_running,
            http=http,
            backoff=backoff,
        )
        application._joined = _Address(code, token)
        return application

    @property
    def code(self) -> str:
        """The code of the session, for callers of its tools. Raises `RuntimeError` unless entered."""
        return self._open.address.code

    @property
    def token(self) -> str:
        """The credential for `joining`; keep it secret. Raises `RuntimeError` unless entered."""
        return self._open.address.token

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that the application lends, by name."""
        return MappingProxyType(self._tools)

    @property
    def refused(self) -> Mapping[str, str]:
        """The tools that the host has refused, each with the reason. Raises `RuntimeError` unless entered."""
        return self._open.session.tools.refusals

    @overload
    def tool(self, function: Lent, /) -> Lent: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        requires: Sequence[CapabilityType | Requirement] = (),
    ) -> Callable[[Lent], Lent]: ...
    def tool(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        requires: Sequence[CapabilityType | Requirement] = (),
    ) -> object:
        """Lend the decorated function, which stays unchanged. Use it bare, or with the arguments of `Tool`."""
        around = names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

        def lend(function: Lent) -> Lent:
            tool = Tool(
                function,
                name=name,
                description=description,
                read_only=read_only,
                idempotent=idempotent,
                destructive=destructive,
                requires=requires,
                around=around,
            )
            self.add(tool)
            return function

        return lend if function is None else lend(function)

    def add(self, tool: Tool | Function, *, reason: str | None = None) -> None:
        """Lend another tool, or replace the one of the same name."""
        self._check_thread()
        around = names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        lent = _lend(tool, around)
        self._tools[lent.name] = lent
        self._on_change(reason or f"{lent.name} was added")

    def remove(self, name: str, *, reason: str | None = None) -> None:
        """Stop lending a tool; running calls go on. Raises `KeyError` for an unknown name."""
        self._check_thread()
        del self._tools[name]
        self._on_change(reason or f"{name} was removed")

    def replace(self, tools: Iterable[Tool | Function], *, reason: str | None = None) -> None:
        """Lend these tools and no others; unchanged tools are not sent again."""
        self._check_thread()
        around = names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        lent = [_lend(tool, around) for tool in tools]
        self._tools.clear()
        self._tools.update({tool.name: tool for tool in lent})
        self._on_change(reason or "the tools were replaced")

    async def settled(self) -> None:
        """Wait until the host has all changes made so far.

        Raises `HostRefused` if it refuses a change as a whole; `refused` has the tools that it refused. Raises
        `RuntimeError` unless entered.
        """
        await self._open.session.tools.wait_until_sent()

    async def serve(self) -> None:
        """Wait while calls are answered. Raises `HostError` when the session has ended; never returns otherwise.

        Raises `RuntimeError` unless entered.
        """
        running = self._open.running
        self._reported = True
        # A cancelled `serve` must not end the session: that is for leaving.
        await asyncio.shield(running)

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise RuntimeError("the application is entered already")
        async with AsyncExitStack() as stack:
            http = self._http or await stack.enter_async_context(AsyncClient())
            host = HostRequests(http, self._url, self._api_key, self._backoff.answer_s)
            address = self._joined or await self._create(host)
            session = OpenSession(
                host.with_credential(address.token),
                address.code,
                self._registration,
                self.tools,
                self._backoff,
                self._max_running,
            )
            # A session that was created ends if registering fails, also with `keep`.
            async with AsyncExitStack() as ending:
                if self._joined is None:
                    ending.push_async_callback(_end_session, host, address.code)
                await session.tools.begin(joins=self._joined is not None)
                ended = ending.pop_all()
            if not self._keeps:
                stack.push_async_exit(ended)
            running = asyncio.create_task(session.run(), name=f"toolplug session of {self._registration.plugin_type}")
            self._entered = _Entered(address, session, running, stack.pop_all())
        self._reported = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First, so that the methods raise from now on.
        (_, _, running, stack), self._entered = self._open, None
        async with stack:
            running.cancel()
            await asyncio.wait([running])
        over = None if running.cancelled() else running.exception()
        # The error of the block is the nearer reason, and would be hidden.
        if over is not None and error is None and not self._reported:
            raise over

    @property
    def _open(self) -> _Entered:
        if self._entered is None:
            raise RuntimeError("the application is not entered; use it inside `async with application:`")
        return self._entered

    async def _create(self, host: HostRequests) -> _Address:
        created = await create(host, self._registration.plugin_type, self._ttl_s)
        return _Address(created.code, created.plugin_token)

    def _check_thread(self) -> None:
        if self._entered is None:
            return
        here = None
        with suppress(RuntimeError):
            here = asyncio.get_running_loop()
        # A function without `async` runs in a thread, where changing a dict and setting an event are not safe.
        if here is not self._entered.running.get_loop():
            raise RuntimeError(
                "tools change in the event loop's thread, and functions without `async` run in others; "
                "make this one `async def`, or use `loop.call_soon_threadsafe`"
            )

    def _on_change(self, reason: str) -> None:
        if self._entered is not None:
            self._entered.session.tools.schedule_update(reason)


def _lend(tool: Tool | Function, around: Mapping[str, object]) -> Tool:
    return tool if isinstance(tool, Tool) else Tool(tool, around=around)


async def _end_session(host: HostRequests, code: str) -> None:
    """End a session if the host can be reached; otherwise it expires."""
    with suppress(HostError):
        await end(host, code)
