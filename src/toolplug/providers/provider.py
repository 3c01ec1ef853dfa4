"""`FunctionProvider`, the base class of providers."""

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
from toolplug.providers.offering.definitions import Prompt, Resource
from toolplug.providers.offering.prompts import bound_prompts, declare_prompts
from toolplug.providers.offering.resources import bound_resources, declare_resources
from toolplug.providers.site import ProviderContext
from toolplug.signatures.annotations import names_around, unread_signature
from toolplug.signatures.values import decoded


def config_model(kind: object) -> type[BaseModel] | None:
    """Return the `Config` of a provider class, or of a function that creates providers; None if it has none.

    Raises `InvalidDefinition` if it is not a pydantic model.
    """
    model = getattr(kind, "Config", None)
    if model is None or (isinstance(model, type) and issubclass(model, BaseModel)):
        return model
    raise InvalidDefinition(f"Config of {kind!r} is no pydantic model; write `class Config(BaseModel)`")


def given_config(kind: type, config: object) -> object:
    """Return the config; a mapping is validated by the class's `Config`, which by default forbids extra keys."""
    model = config_model(kind)
    if model is None or not isinstance(config, Mapping):
        return config
    return model.model_validate(config, extra=None if "extra" in model.model_config else "forbid")


def default_config(provider: object) -> object:
    """Return the config of an instance created without one: `Config()`, or None without a `Config`.

    Raises `InvalidDefinition` if the model has required fields.
    """
    kind = type(provider)
    model = config_model(kind)
    try:
        return None if model is None else model()
    except ValidationError as error:
        asked = ", ".join(str(item["loc"][0]) for item in error.errors() if item["loc"])
        raise InvalidDefinition(f"{kind.__qualname__} needs a config: give {asked} of its Config") from None


async def _call_blocking(target: Target, call: ToolCall, context: CallContext) -> object:
    """Run the target in its own thread, as the caller's tenant. Raises `TimeoutError` at the deadline."""

    def function() -> object:
        enter_frame(context.principal.tenant)
        return target(call, context)

    async with library_types.timeout_at(context.deadline):
        return await library_types.in_own_thread(function)


_STARTED = "_toolplug_started"

Start = Callable[[object, ProviderContext], Awaitable[None]]


def remember_start(kind: type) -> None:
    """Wrap the class's own `start`, so that `is_started` knows when it has succeeded."""
    start: Start | None = vars(kind).get("start")
    if not inspect.iscoroutinefunction(start):
        return

    @wraps(start)
    async def remembered(self: object, site: ProviderContext) -> None:
        await start(self, site)
        vars(self)[_STARTED] = True

    setattr(kind, "start", remembered)  # noqa: B010  a class takes no item


def is_started(provider: object) -> bool:
    """Return whether `start` has succeeded since the instance was created or closed."""
    return vars(provider).get(_STARTED, False)


def forget_start(provider: object) -> None:
    """Note that the instance was closed, and may be started again."""
    vars(provider).pop(_STARTED, None)


class FunctionProvider:
    """The base class of providers: tools, HTTP routes and metrics that are configured and started together.

    A subclass has methods with `@tool` and `@route`, and, if it has settings, `class Config(BaseModel)`. It needs no
    constructor; its own is called without arguments, or with `config` and `key` if it has parameters of these names.
    `key`, `config` and `log` are set before it runs. Each hook has a default.
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
        around = names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        declare(cls, around)
        declare_prompts(cls, around)
        declare_resources(cls, around)

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
        """Return the name for records and metrics: the key."""
        return self.key

    @hookimpl
    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools in listing order: the `@tool` methods."""
        return [bound.definition for bound in bound_tools(self)]

    @hookimpl
    def can_execute(self, name: str) -> bool:
        """Return whether `tools` has a tool of this name."""
        return any(definition.name == name for definition in self.tools())

    @hookimpl
    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Call the `@tool` method of this name. An override receives all calls, and may pass some on with `super()`."""
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
        """Return Starlette routes besides those of `@route`: none."""
        return ()

    @hookimpl
    def collectors(self) -> Sequence[library_types.Collector]:
        """Return the provider's own metrics: none."""
        return ()

    @hookimpl
    def prompts(self) -> Sequence[Prompt]:
        """Return the prompts in listing order: the `@prompt` methods."""
        return list(bound_prompts(self))

    @hookimpl
    def resources(self) -> Sequence[Resource]:
        """Return the resources and resource templates in listing order: the `@resource` methods."""
        return list(bound_resources(self))

    @hookimpl
    async def start(self, site: ProviderContext) -> None:
        """Open what the provider needs; called once before its first call. Does nothing by default."""

    @hookimpl
    async def aclose(self) -> None:
        """Close what was opened; called once, also after a failed `start`. Does nothing by default."""


def built(kind: type[FunctionProvider], key: str, config: object) -> FunctionProvider:
    """Return an instance whose key and config are set before its constructor runs. Raises the constructor's errors.

    Without `config` it has the class's default.
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
    """Return each with its key: the name of its class or function in snake case, numbered if it is taken."""
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
    """Return the class of a provider from code, and a function that creates it. Raises `InvalidDefinition`."""
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
    """Raise `InvalidDefinition` if its `Config` has required fields and no config was given."""
    _ = provider.config
