"""`FunctionProvider`, the base class of providers."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from toolplug import library_types
from toolplug.catalog.call import CallContext, ToolCall, enter_frame
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Target
from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import bound_tools, declare
from toolplug.providers.offering.decorators import bound_prompts, bound_resources, declare_offers
from toolplug.providers.offering.definitions import Prompt, Resource
from toolplug.providers.plugins.implementations import HOOKS, taken_arguments
from toolplug.providers.site import ProviderContext
from toolplug.signatures.annotations import ClassFunction, class_function, names_around, unread_signature
from toolplug.signatures.values import decode_arguments


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
    async def start_and_remember(self: object, site: ProviderContext) -> None:
        await start(self, site)
        # In the instance's own dictionary, past a `__setattr__` of the author's.
        vars(self)[_STARTED] = True

    setattr(kind, "start", start_and_remember)  # noqa: B010  a class takes no item


def is_started(provider: object) -> bool:
    """Return whether `start` has succeeded since the instance was created or closed."""
    return vars(provider).get(_STARTED, False)


def forget_start(provider: object) -> None:
    """Note that the instance was closed, and may be started again."""
    vars(provider).pop(_STARTED, None)


_SITE = "_toolplug_site"


def enter_site(provider: object, site: ProviderContext) -> None:
    """Set the context that the provider's hooks get as `site`."""
    vars(provider)[_SITE] = site


def site_of(provider: object) -> ProviderContext | None:
    """Return the context of the provider, None before it is started."""
    return vars(provider).get(_SITE)


_OUTSIDE = "_toolplug_outside"


def set_outside_target(provider: FunctionProvider, target: Target) -> None:
    """Have calls of the provider's tools begun by `target`, which returns their `RunningCall`, and not by `execute`."""
    vars(provider)[_OUTSIDE] = target


def outside_target(provider: FunctionProvider) -> Target | None:
    """Return what begins the calls of a provider outside of this process; None for one whose `execute` runs them."""
    return vars(provider).get(_OUTSIDE)


def adapt_hooks(kind: type) -> None:
    """Let the class's own hooks be called with all arguments, also those that take fewer, or `site`.

    A hook with other parameters stays as it is: it is a problem of the class.
    """
    for name, hook in HOOKS.items():
        found = vars(kind).get(name)
        own = class_function(found)
        if own is None or hook.asked != "provider":
            continue
        taken = taken_arguments(own.function)[own.bound :]
        if taken != hook.arguments and set(taken) <= set(hook.accepted_arguments):
            places = [hook.arguments.index(each) if each in hook.arguments else -1 for each in taken]
            adapted = _adapt(found, own, places)
            setattr(kind, name, adapted)


def _adapt(found: Any, own: ClassFunction, places: Sequence[int]) -> Callable[..., object]:
    """Return a method that passes on the arguments at these places; the last of all is the site."""

    @wraps(own.function)
    def passing(self: object, *given: object) -> Any:
        every = (*given, site_of(self))
        # Bound here and not once, as the class is adapted before any instance exists.
        return found.__get__(self, type(self))(*[every[place] for place in places])

    @wraps(own.function)
    async def awaiting(self: object, *given: object) -> object:
        return await passing(self, *given)

    adapted: Any = awaiting if own.is_async else passing
    if not own.bound:  # the static method that it stands for has no first parameter
        signature = unread_signature(own.function)
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        adapted.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
    return adapted


class SignInEndpoints(NamedTuple):
    """Where callers sign in to the system behind a provider, which `FunctionProvider.sign_in_endpoints` returns.

    `issuer` is a URL whose metadata has the endpoints. Without it, `authorization` and `token` are the URLs of OAuth
    2.1; `refresh` is another one for new tokens, empty for `token`. `scopes` are asked for where the entry has none.

    ```python
    from toolplug import FunctionProvider, SignInEndpoints

    class Shop(FunctionProvider):
        def sign_in_endpoints(self) -> SignInEndpoints:
            return SignInEndpoints(issuer="https://id.example")

    assert Shop().sign_in_endpoints().scopes == ()
    ```
    """

    issuer: str = ""
    authorization: str = ""
    token: str = ""
    refresh: str = ""
    scopes: tuple[str, ...] = ()


class FunctionProvider:
    """The base class of providers: tools, HTTP routes and metrics that are configured and started together.

    A subclass has methods with `@tool` and `@route`, and, if it has settings, `class Config(BaseModel)`. It needs no
    constructor; its own is called without arguments, or with `config` and `key` if it has parameters of these names.
    `key`, `config` and `log` are set before it runs. Each hook has a default.

    ```python
    import asyncio

    from pydantic import BaseModel

    from toolplug import FunctionProvider, FunctionRegistry, tool

    class Shop(FunctionProvider):
        class Config(BaseModel):
            price: float = 3.5

        @tool(read_only=True)
        async def price(self, item: str) -> str:
            "Say what an item costs."
            return f"{item}: {self.config.price} EUR"

    async def main():
        async with FunctionRegistry([Shop({"price": 4.0})]) as registry:
            assert (await registry.call("price", item="tea")).output == "tea: 4.0 EUR"

    asyncio.run(main())
    ```
    """

    key: str = ""
    """Its key in the configuration; two instances of a class have two."""

    accepts_idempotency_key: bool = False
    """Does it act once for one `context.idempotency_key`, however often it is called; then calls may be retried."""

    config: Any = cached_property(default_config)
    """An instance of the class's `Config`, else None. A subclass may annotate it: `config: Config`."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        adapt_hooks(cls)
        remember_start(cls)
        # The frame of the class statement: annotations may name what is local to a test or a factory.
        around = names_around(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        declare(cls, around)
        declare_offers(cls, around)

    def __init__(self, config: object = None, *, key: str = "") -> None:
        if config is not None:
            self.config = given_config(type(self), config)
        if key:
            self.key = key

    @property
    def log(self) -> logging.Logger:
        """The logger of this provider, `toolplug.providers.<key>`."""
        return logging.getLogger(f"toolplug.providers.{self.key}".rstrip("."))

    @classmethod
    def locked_files(cls, config: Any, folder: Path) -> Mapping[str, str]:
        """Return the data files that its lock entry has: what stands for each one's content, by its path. None here.

        Asked before there is an instance, where a lock is written or compared. `config` is the valid `Config` of the
        entry, `folder` the base of relative paths. A text is best the SHA-256 in hexadecimal; it is compared whole.
        Raises `InvalidDefinition` for files that cannot be read.
        """
        return {}

    def name(self) -> str:
        """Return the name for records and metrics: the key."""
        return self.key

    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools in listing order: the `@tool` methods."""
        return [bound.definition for bound in bound_tools(self)]

    def can_execute(self, name: str) -> bool:
        """Return whether `tools` has a tool of this name."""
        return any(definition.name == name for definition in self.tools())

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Call the `@tool` method of this name. An override receives all calls, and may pass some on with `super()`."""
        bound = next((bound for bound in bound_tools(self) if bound.definition.name == call.name), None)
        if bound is None:
            raise LookupError(f"{type(self).__qualname__} lists {call.name!r} but has no @tool and no execute() for it")
        if bound.convert is not None:
            call = call._replace(arguments=bound.convert(decode_arguments(call.arguments)))
        if bound.blocking:
            return await _call_blocking(bound.target, call, context)
        return await bound.target(call, context)

    def routes(self) -> Sequence[library_types.BoundRoute | library_types.Route]:
        """Return routes besides those of `@route`: none."""
        return ()

    def collectors(self) -> Sequence[library_types.Collector]:
        """Return the provider's own metrics: none."""
        return ()

    def prompts(self) -> Sequence[Prompt]:
        """Return the prompts in listing order: the `@prompt` methods."""
        return bound_prompts(self)

    def resources(self) -> Sequence[Resource]:
        """Return the resources and resource templates in listing order: the `@resource` methods."""
        return bound_resources(self)

    def sign_in_endpoints(self) -> SignInEndpoints | None:
        """Return where callers sign in to its system, asked once it has started: None, `user_auth` has to name it."""
        return None

    async def start(self, site: ProviderContext) -> None:
        """Open what the provider needs; called once before its first call. Does nothing by default."""

    async def aclose(self) -> None:
        """Close what was opened; called once, also after a failed `start`. Does nothing by default."""

    async def diagnose(self) -> Sequence[str]:
        """Return what keeps this provider from working now and its fix, for `toolplug doctor`: nothing."""
        return ()


def build_provider(kind: type[FunctionProvider], key: str, config: object) -> FunctionProvider:
    """Return an instance whose key and config are set before its constructor runs. Raises the constructor's errors.

    Without `config` it has the class's default.
    """
    # `__new__` and `__init__` apart, so that a constructor of the author's finds its key and config set.
    provider = kind.__new__(kind)
    provider.key = key
    if config is not None:
        provider.config = config
    named = unread_signature(kind.__init__).parameters
    given: dict[str, Any] = {"config": config, "key": key}
    provider.__init__(**{name: value for name, value in given.items() if name in named})
    return provider
