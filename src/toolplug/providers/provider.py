"""The class that plugin authors derive from."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial, wraps
from itertools import chain, count
from types import FunctionType
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall, enter_frame
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Target
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import bound_tools, declare, is_tool
from toolplug.providers.hooks import hookimpl, mark_hooks
from toolplug.providers.site import ProviderContext
from toolplug.signatures.annotations import names_around, unread_signature
from toolplug.signatures.values import decoded


def config_model(kind: object) -> type[BaseModel] | None:
    """The `Config` of a provider class, or of a function that makes providers; None where it has none.

    Raises `InvalidDefinition` for one that is no pydantic model.
    """
    model = getattr(kind, "Config", None)
    if model is None or (isinstance(model, type) and issubclass(model, BaseModel)):
        return model
    raise InvalidDefinition(f"Config of {kind!r} is no pydantic model; write `class Config(BaseModel)`")


def given_config(kind: type, config: object) -> object:
    """The config as it is; a mapping is read by the class's `Config`, extra keys forbidden unless it says otherwise."""
    model = config_model(kind)
    if model is None or not isinstance(config, Mapping):
        return config
    return model.model_validate(config, extra=None if "extra" in model.model_config else "forbid")


def default_config(provider: object) -> object:
    """What `config` is where nobody gave one: `Config()`, or None without a `Config`.

    Raises `InvalidDefinition` where the model asks for more.
    """
    kind = type(provider)
    model = config_model(kind)
    try:
        return None if model is None else model()
    except ValidationError as error:
        asked = ", ".join(str(item["loc"][0]) for item in error.errors() if item["loc"])
        raise InvalidDefinition(f"{kind.__qualname__} needs a config: give {asked} of its Config") from None


async def _call_blocking(target: Target, call: ToolCall, context: CallContext) -> object:
    """Wait for the target in a thread of its own, as the caller's tenant; raises `TimeoutError` at the deadline."""

    def function() -> object:
        enter_frame(context.principal.tenant)
        return target(call, context)

    async with library_types.timeout_at(context.deadline):
        return await library_types.in_own_thread(function)


_STARTED = "_toolplug_started"

Start = Callable[[object, ProviderContext], Awaitable[None]]


def remember_start(kind: type) -> None:
    """Make the class's own `start` leave a mark on its instance when it has succeeded."""
    start: Start | None = vars(kind).get("start")
    if not inspect.iscoroutinefunction(start):
        return

    @wraps(start)
    async def remembered(self: object, site: ProviderContext) -> None:
        await start(self, site)
        vars(self)[_STARTED] = True

    setattr(kind, "start", remembered)  # noqa: B010  a class takes no item


def is_started(provider: object) -> bool:
    """Has its `start` succeeded since it was made or closed."""
    return vars(provider).get(_STARTED, False)


def forget_start(provider: object) -> None:
    """It has been closed: it may be started again."""
    vars(provider).pop(_STARTED, None)


class FunctionProvider:
    """Tools, HTTP routes and metrics that a host takes in as one.

    A subclass writes methods with `@tool` and `@route`, and, if it has settings, `class Config(BaseModel)`. It needs
    no constructor. One that it has of its own is called without arguments, or with `config` and `key` where it names
    them; `key`, `config` and `log` are there before it runs. Every hook has a default.
    """

    key: str = ""
    """Its key in the configuration; two instances of a class have two."""

    accepts_idempotency_key: bool = False
    """Does it act once for one `context.idempotency_key`, however often it is called; then calls may be retried."""

    config: Any = cached_property(default_config)
    """An instance of the class's `Config`, else None. A subclass may annotate it: `config: Config`."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        remember_start(cls)
        mark_hooks(cls)
        declare(cls, names_around(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]

    def __init__(self, config: object = None, *, key: str = "") -> None:
        if config is not None:
            self.config = given_config(type(self), config)
        if key:
            self.key = key

    @property
    def log(self) -> logging.Logger:
        """The logger of this provider, `toolplug.providers.<key>`."""
        return logging.getLogger(f"toolplug.providers.{self.key}".rstrip("."))

    @hookimpl
    def name(self) -> str:
        """Its name in records and metrics: the key."""
        return self.key

    @hookimpl
    def tools(self) -> Sequence[ToolDefinition]:
        """Its tools, in listing order: those of `@tool`."""
        return [bound.definition for bound in bound_tools(self)]

    @hookimpl
    def can_execute(self, name: str) -> bool:
        """Is it a tool that `tools` gives."""
        return any(definition.name == name for definition in self.tools())

    @hookimpl
    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Call the `@tool` method of this name; an override runs every call itself and may hand some on to this."""
        bound = next((bound for bound in bound_tools(self) if bound.definition.name == call.name), None)
        if bound is None:
            raise LookupError(f"{type(self).__qualname__} lists {call.name!r} but has no @tool and no execute() for it")
        if bound.convert is not None:
            call = call._replace(arguments=bound.convert(decoded(call.arguments)))
        if bound.blocking:
            return await _call_blocking(bound.target, call, context)
        return await bound.target(call, context)

    @hookimpl
    def routes(self) -> Sequence[library_types.Route]:
        """Its Starlette routes beside those of `@route`: none."""
        return ()

    @hookimpl
    def collectors(self) -> Sequence[library_types.Collector]:
        """Its own metrics: none."""
        return ()

    @hookimpl
    async def start(self, site: ProviderContext) -> None:
        """Get ready; nothing to do."""

    @hookimpl
    async def aclose(self) -> None:
        """Give everything back; nothing to do."""


def built(kind: type[FunctionProvider], key: str, config: object) -> FunctionProvider:
    """An instance whose key and config are there before its constructor runs. Raises what that raises.

    Without `config` it is the class's own default.
    """
    provider = kind.__new__(kind)
    provider.key = key
    if config is not None:
        provider.config = config
    named = unread_signature(kind.__init__).parameters
    given: dict[str, Any] = {"config": config, "key": key}
    provider.__init__(**{name: value for name, value in given.items() if name in named})
    return provider


ProviderLike = FunctionProvider | type[FunctionProvider] | Callable[..., object]
"""An instance, a class whose `Config` has a default for everything, or a function with `@tool`."""

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def keyed(providers: Sequence[ProviderLike]) -> Iterator[tuple[str, ProviderLike]]:
    """Each with its key: the name of its class or function in snake case, with a number where that is taken."""
    taken: set[str] = set()
    for given in providers:
        kind = type(given) if isinstance(given, FunctionProvider) else given
        name = _WORD_BREAK.sub("_", getattr(kind, "__name__", "")).lower().strip("_")
        numbered = (f"{name}_{number}" for number in count(2))
        key = next(each for each in chain((name,), numbered) if each not in taken)
        taken.add(key)
        yield key, given


def provider_class(name: str, module: str, functions: Mapping[str, FunctionType]) -> type[FunctionProvider]:
    """Return a provider class whose tools are these functions with `@tool`, by name. Raises `InvalidDefinition`."""
    methods = {attribute: staticmethod(function) for attribute, function in functions.items()}
    return type(name, (FunctionProvider,), {**methods, "__module__": module})


def provider_of(key: str, given: object) -> tuple[type[FunctionProvider], Callable[[], FunctionProvider]]:
    """The class of a provider of a host's code, and what makes its instance. Raises `InvalidDefinition`."""
    if isinstance(given, FunctionProvider):
        given.key = key
        return type(given), lambda: given
    if isinstance(given, type) and issubclass(given, FunctionProvider):
        return given, partial(built, given, key, None)
    function = cast("object", given)
    if inspect.isfunction(function) and is_tool(function):
        kind = provider_class(function.__name__, function.__module__, {function.__name__: function})
        return kind, partial(built, kind, key, None)
    raise InvalidDefinition(
        f"{key!r}: {given!r} is no provider; give a FunctionProvider, its class, or a function with @tool"
    )


def check_config(provider: FunctionProvider) -> None:
    """Raise `InvalidDefinition` where nobody gave the settings that its `Config` asks for."""
    _ = provider.config
