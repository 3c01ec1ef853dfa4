"""The provider `llm`: the functions and toolboxes that one plugin of `llm` registers, each toolbox in a thread."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import pluggy
from pydantic import BaseModel, Field

import llm
from llm import hookspecs
from toolplug import CallContext, ForeignTool, ForeignTools, ProviderContext, ToolCall, ToolError, ToolResult
from toolplug.errors import InvalidDefinition

GROUP = "llm"
"""The entry points of the plugins of `llm`."""
MAX_TENANTS = 100
"""Tenants whose toolboxes are kept at a time, a thread each: those of the one that called longest ago are dropped."""

LOAD_S = 10.0
"""Longest wait for other plugins that are being loaded; one that hangs does not keep the others from starting."""
_LOADING = threading.Lock()
# `llm` and its plugins are written for a process with one thread: two that set up sqlite-utils at a time break it.

T = TypeVar("T")


class LlmPlugin(ForeignTools):
    """The tools of one installed plugin of `llm`; each tenant has toolboxes of its own."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        plugin: str = Field(description="the distribution of the plugin, such as llm-tools-sqlite")
        arguments: dict[str, Any] = Field(default={}, description="the arguments of its toolboxes, by name")

    config: Config
    _registered: _Registered
    _site: ProviderContext
    _spare: _Toolboxes | None = None

    def __init__(self, config: object = None, *, key: str = "") -> None:
        super().__init__(config, key=key)
        self._boxes: OrderedDict[str, _Toolboxes] = OrderedDict()

    async def start(self, site: ProviderContext) -> None:
        """Load the plugin and make its toolboxes. Raises `InvalidDefinition` with package, cause and fix."""
        self._site = site
        self._registered = await site.in_thread(_load, self.config.plugin, self.config.arguments)
        self._spare = await self._open_boxes()
        boxed = [each.tool for each in self._spare.tools.values()]
        self.offer(map(_foreign, [*self._registered.functions, *boxed]))

    async def aclose(self) -> None:
        """Let the threads of the toolboxes end."""
        for boxes in (*self._boxes.values(), *([self._spare] if self._spare is not None else [])):
            boxes.close()

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult | str:
        """Call the function as `llm` does: what it raises is the text of a `ToolError`, other values are JSON."""
        arguments: Any = call.arguments
        function: Any
        if call.name in self._registered.names:
            function = self.source_of(call.name).implementation
            run = self._site.in_thread
        else:
            thread, boxed = (await self._boxes_of(context.principal.tenant)).tools[call.name]
            function = boxed.implementation
            run = thread.run
        try:
            if inspect.iscoroutinefunction(function):
                return _make_result(await function(**arguments))
            return await run(lambda: _make_result(function(**arguments)))
        except Exception as error:
            # To `llm` too the text of an exception is what the model reads: plugins word theirs for it.
            raise ToolError(str(error) or type(error).__name__) from error

    async def _boxes_of(self, tenant: str) -> _Toolboxes:
        """Return the toolboxes of a tenant, made at its first call: what they keep is for this tenant alone."""
        boxes = self._boxes.get(tenant)
        if boxes is None:
            made, self._spare = self._spare, None
            if made is None:
                made = await self._open_boxes()
            # Another call of this tenant may have made them meanwhile.
            boxes = self._boxes.setdefault(tenant, made)
            if boxes is not made:
                made.close()
        self._boxes.move_to_end(tenant)
        while len(self._boxes) > MAX_TENANTS:
            _, oldest = self._boxes.popitem(last=False)
            oldest.close()
        return boxes

    async def _open_boxes(self) -> _Toolboxes:
        opened = _Toolboxes([], {})
        try:
            for kind in self._registered.toolboxes:
                thread = _OwnThread(f"toolplug-llm-{self.key}")
                opened.threads.append(thread)
                box = await thread.run(partial(_make, self._registered.package, kind, self.config.arguments))
                await box.prepare_async()
                tools: list[Any] = await thread.run(lambda box=box: list(box.tools()))
                opened.tools.update({tool.name: _BoxedTool(thread, tool) for tool in tools})
        except BaseException:
            opened.close()
            raise
        return opened


class _Registered(NamedTuple):
    """What a plugin has registered. `names` are those of the functions."""

    package: str
    functions: list[Any]
    names: frozenset[str]
    toolboxes: list[Any]


class _BoxedTool(NamedTuple):
    """A tool of a toolbox, and the thread that the toolbox was made in."""

    thread: _OwnThread
    tool: Any


class _Toolboxes(NamedTuple):
    """The toolboxes of one tenant, a thread each, and their tools by name."""

    threads: list[_OwnThread]
    tools: dict[str, _BoxedTool]

    def close(self) -> None:
        for thread in self.threads:
            thread.close()


class _OwnThread:
    """A thread that runs functions one after the other: connections to SQLite serve the thread that opened them only.

    By hand, as a `ThreadPoolExecutor` keeps the process from ending while a tool hangs.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._main, name=name, daemon=True).start()

    async def run(self, function: Callable[[], T]) -> T:
        """Call the function with the caller's context variables, unless the caller goes before its turn."""
        outcome: Future[T] = Future()
        self._work.put((outcome, partial(copy_context().run, function)))
        return await asyncio.wrap_future(outcome)

    def close(self) -> None:
        """Let the thread end after the work that it has."""
        self._work.put(None)

    def _main(self) -> None:
        while (work := self._work.get()) is not None:
            outcome, function = work
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(function())
                except BaseException as error:  # noqa: BLE001  raised where it is awaited
                    outcome.set_exception(error)
            del work, outcome, function  # an idle thread keeps no arguments alive


@contextmanager
def _alone() -> Generator[None]:
    """Wait until no other plugin is being loaded, `LOAD_S` seconds at most."""
    alone = _LOADING.acquire(timeout=LOAD_S)
    try:
        yield
    finally:
        if alone:
            _LOADING.release()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entry_points(plugin: str) -> list[EntryPoint]:
    return [point for point in entry_points(group=GROUP) if point.dist and _normal(point.dist.name) == _normal(plugin)]


def _package(plugin: str, points: Sequence[EntryPoint]) -> str:
    """Return name and version of the plugin's distribution. Raises `InvalidDefinition` if it is no plugin of `llm`."""
    try:
        package = f"{plugin} {version(plugin)}"
    except (PackageNotFoundError, ValueError):
        known = ", ".join(sorted({_normal(point.dist.name) for point in entry_points(group=GROUP) if point.dist}))
        near = f"; plugins that are installed: {known}" if known else ""
        raise InvalidDefinition(f"no package {plugin!r} is installed: pip install {plugin}{near}") from None
    if not points:
        raise InvalidDefinition(f"{package} is no plugin of llm: it has no entry point {GROUP!r}; remove the entry")
    return package


def _load(plugin: str, arguments: Mapping[str, object]) -> _Registered:
    """Import the plugin and ask its hooks, in a manager of its own: `llm`'s would load every other plugin, too."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    functions: list[Any] = []
    toolboxes: list[Any] = []
    tool_kind: Any = llm.Tool

    def register(tool_or_function: Any, name: str | None = None) -> None:
        if isinstance(tool_or_function, llm.Toolbox) or _is_toolbox(tool_or_function):
            toolboxes.append(tool_or_function)
        elif isinstance(tool_or_function, llm.Tool):
            functions.append(tool_or_function)
        else:
            functions.append(tool_kind.function(tool_or_function, name=name))

    points = _entry_points(plugin)
    package = _package(plugin, points)
    try:
        with _alone():
            for point in points:
                manager.register(point.load(), name=point.name)
            manager.hook.register_tools(register=register)
    # `SystemExit` too: it ends the command line of `llm`, and is this plugin's failure here.
    except BaseException as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidDefinition(f"{package} cannot be loaded: {said}; update it, or remove the entry") from error
    if not functions and not toolboxes:
        raise InvalidDefinition(f"{package} registers no tools; plugins of models and templates are of no use here")
    accepted = [_parameters(box) for box in toolboxes if inspect.isclass(box)]
    unknown = [name for name in arguments if not any(_takes(names, name) for names in accepted)]
    if unknown:
        known = ", ".join(sorted({name for names in accepted for name in names if not name.startswith("*")})) or "none"
        raise InvalidDefinition(f"arguments: no toolbox of {package} takes {', '.join(unknown)}; there are: {known}")
    return _Registered(package, functions, frozenset(tool.name for tool in functions), toolboxes)


def _is_toolbox(given: object) -> bool:
    return inspect.isclass(given) and issubclass(given, llm.Toolbox)


def _parameters(box: Callable[..., object]) -> dict[str, bool]:
    """Return the parameters of a toolbox and whether it needs each; `**` stands for any other name."""
    found: dict[str, bool] = {}
    if inspect.unwrap(vars(box)["__init__"]) is object.__init__:
        return found  # `llm` wraps each constructor, and that of a toolbox without one would seem to take anything
    for each in inspect.signature(box).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            found["**"] = False
        elif each.kind is not each.VAR_POSITIONAL:
            found[each.name] = each.default is each.empty
    return found


def _takes(names: Mapping[str, bool], name: str) -> bool:
    """Return whether a toolbox with these parameters takes an argument."""
    return name in names or "**" in names


def _make(package: str, kind: Any, arguments: Mapping[str, object]) -> Any:
    """Return a toolbox made with those of the arguments that it takes; one that the plugin made itself is shared."""
    if not inspect.isclass(kind):
        return kind
    names = _parameters(kind)
    missing = [name for name, needed in names.items() if needed and name not in arguments]
    if missing:
        example = ", ".join(f"{name}: …" for name in missing)
        raise InvalidDefinition(
            f"the toolbox {kind.__name__} of {package} needs {', '.join(missing)}; set arguments: {{{example}}}"
        )
    try:
        with _alone():
            made: Any = kind(**{name: value for name, value in arguments.items() if _takes(names, name)})
            made.prepare()
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        fix = "correct its arguments, or what it needs"
        raise InvalidDefinition(f"the toolbox {kind.__name__} of {package} cannot be made: {said}; {fix}") from error
    return made


def _foreign(tool: Any) -> ForeignTool:
    # Functions take no other arguments; a schema that a plugin wrote itself says so, or not.
    parameters: Mapping[str, object] = {"additionalProperties": False, **tool.input_schema}
    description = inspect.cleandoc(tool.description or "")
    return ForeignTool(name=tool.name, description=description, parameters=parameters, source=tool)


def _make_result(value: Any) -> ToolResult | str:
    """Return the result that a model gets from `llm`: text, or JSON in which what has no JSON is its `repr`."""
    attachments: list[llm.Attachment] = []
    if isinstance(value, llm.ToolOutput):
        output: Any = value
        value, attachments = output.output, output.attachments
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    # A text alone is what a host takes fastest: the parts of a result are checked one by one.
    return ToolResult(output=text, parts=tuple(_part(each) for each in attachments)) if attachments else text


def _part(attachment: llm.Attachment) -> Mapping[str, object]:
    """Return an attachment as a content block. One that is a URL stays one: the host fetches nothing for a tool."""
    if attachment.url is not None:
        return {"type": "text", "text": attachment.url}
    kind = attachment.resolve_type() or "application/octet-stream"
    data = attachment.base64_content()
    if kind.startswith(("image/", "audio/")):
        return {"type": kind.partition("/")[0], "data": data, "mimeType": kind}
    return {"type": "resource", "resource": {"uri": f"attachment:{attachment.id()}", "mimeType": kind, "blob": data}}
