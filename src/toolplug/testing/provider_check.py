"""Checks a provider against the contract between providers and hosts.

async def test_the_provider_keeps_the_contract():
    await check_provider(Notes, calls={"add_note": {"text": "milk"}, "find_notes": {"query": "milk"}})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from prometheus_client import CollectorRegistry

from toolplug.apart.entries import apart_class
from toolplug.catalog.call import Principal
from toolplug.config.run_settings import RunSettings
from toolplug.providers.provider import FunctionProvider, build_provider, given_config
from toolplug.providers.registry import FunctionRegistry
from toolplug.testing.broken_rule import raise_broken
from toolplug.testing.provider_rules.calls import call_rules, cancellation_rules, offer_rules, pressure_rules
from toolplug.testing.provider_rules.documentation import documentation_rules
from toolplug.testing.provider_rules.life import bare_rules, life_rules
from toolplug.testing.provider_rules.metrics import metric_rules, scrape_rules
from toolplug.testing.provider_rules.routes import Isolation, isolation_rules, route_rules, stub_rules
from toolplug.testing.provider_rules.subject import TESTER, Subject, start_subject

Make = Callable[[], FunctionProvider]
"""A provider class, or a function that makes a new instance."""

NO_SETTINGS: Mapping[str, object] = MappingProxyType({})
KEY = "provider"


def made(make: Make, settings: Mapping[str, object] = NO_SETTINGS, *, key: str = KEY) -> FunctionProvider:
    """Return a new instance, not started. `settings`: of a class, as in its entry in the configuration.

    Raises `pydantic.ValidationError` for settings that its `Config` refuses.
    """
    if isinstance(make, type):
        return build_provider(make, key, given_config(make, settings) if settings else None)
    provider = make()
    provider.key = key
    return provider


def running(
    make: Make | FunctionProvider,
    settings: Mapping[str, object] = NO_SETTINGS,
    *,
    key: str = KEY,
    metrics: CollectorRegistry | None = None,
) -> FunctionRegistry:
    """Return a registry with this provider, which runs while the registry is entered: `async with running(Notes) as …`.

    Its records are in memory, its files in a temporary directory.
    """
    provider = make if isinstance(make, FunctionProvider) else made(make, settings, key=key)
    return FunctionRegistry({key: provider}, metrics=metrics)


NO_CALLS: Mapping[str, Mapping[str, object]] = {}


async def check_provider(
    make: Make,
    *,
    settings: Mapping[str, object] = NO_SETTINGS,
    calls: Mapping[str, Mapping[str, object]] = NO_CALLS,
    prompts: Mapping[str, Mapping[str, object]] = NO_CALLS,
    resources: Mapping[str, Mapping[str, object]] = NO_CALLS,
    uncalled: Collection[str] = (),
    isolation: Sequence[Isolation] = (),
    readme: Path | None = None,
    key: str = KEY,
    principal: Principal = TESTER,
    within_s: float = 2.0,
    run: Mapping[str, object] = NO_SETTINGS,
) -> None:
    """Raise `ContractBroken` with every rule that the provider breaks, its place and a fix.

    `make`: its class, with the `settings` of its entry, or a function that returns a new instance. `calls`: for each
    tool arguments with which it succeeds, in an order in which they can be made; each is made many times, also
    concurrently. `prompts`: for each prompt with required arguments, arguments with which it succeeds. `resources`: for
    each URI template, values of its variables. `uncalled`: tools, prompts and URIs not to call. `isolation`: pairs of
    asynchronous functions, `write(caller)`, which stores something by `caller.call(tool, …)` or `caller.request(method,
    path, body)`, and `sees(caller, written)`, which returns whether the caller sees it: the one that wrote it has to, a
    caller of another tenant must not. `readme`: the README of the distribution, which has to name every setting; every
    parameter, route and setting then needs a description. `within_s`: seconds that a cancelled call, a route, and tasks
    left after the close may take. `run`: where it runs, as its entry has it:
    with `{"process": True}` each instance has a process of its own, which imports the class; its module must not need
    what the test has patched. A worker runs that process as well. Starts and closes several instances, each with an
    empty store and directory.
    """
    where = RunSettings.model_validate(dict(run))
    if where.dialled:
        raise ValueError("a worker runs the provider in a process of its own: check it with run={'process': True}")
    subject = Subject(
        make=partial(apart_class, make, settings, key, where)
        if where.process
        else partial(made, make, settings, key=key),
        run=where,
        key=key,
        calls=calls,
        prompts=prompts,
        resources=resources,
        uncalled=tuple(uncalled),
        principal=principal,
        within_s=within_s,
    )
    # A provider that breaks the rules of one step would break those of the next as well.
    raise_broken(await bare_rules(subject))
    raise_broken(await cancellation_rules(subject))
    raise_broken(await life_rules(subject))
    async with start_subject(subject) as started:
        broken = [*await call_rules(started), *await pressure_rules(started), *await route_rules(started)]
        broken += await offer_rules(started)
        broken += [*metric_rules(started.generation.collectors), *stub_rules(started)]
        broken += [] if broken else scrape_rules(started)
        broken += await isolation_rules(started, isolation)
        broken += [] if readme is None else documentation_rules(started, readme)
    raise_broken(broken)
