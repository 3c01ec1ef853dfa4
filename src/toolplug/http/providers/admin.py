"""`/v1/providers` and `/v1/reload`: what an operator sees and changes."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from toolplug.catalog.text import counted
from toolplug.errors import ConfigError, NoSuchProvider
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.problem import HttpProblem


async def list_providers(host: Host, exchange: Exchange) -> None:
    """Answer every provider with its state, the reason, and what to do about it."""
    await exchange.answer(200, orjson.dumps({"providers": [asdict(record) for record in host.records()]}))


async def enable_provider(host: Host, exchange: Exchange) -> None:
    """Start a provider until the next start or reload. Raises `HttpProblem`."""
    key = exchange.params["key"]
    try:
        await host.enable(key, by=exchange.principal, request_id=exchange.request_id)
    except NoSuchProvider as error:
        raise _unknown_provider(error) from None
    except ConfigError as error:
        raise _config_invalid(error) from None
    await _answer_record(host, exchange, key)


async def disable_provider(host: Host, exchange: Exchange) -> None:
    """Stop a provider until the next start or reload; what runs ends. Raises `HttpProblem`."""
    key = exchange.params["key"]
    try:
        await host.disable(key, by=exchange.principal, request_id=exchange.request_id)
    except NoSuchProvider as error:
        raise _unknown_provider(error) from None
    await _answer_record(host, exchange, key)


async def reload(host: Host, exchange: Exchange) -> None:
    """Read the configuration again. Raises `HttpProblem` with every problem in it; then nothing has changed."""
    try:
        done = await host.reload(by=exchange.principal, request_id=exchange.request_id)
    except ConfigError as error:
        raise _config_invalid(error) from None
    await exchange.answer(200, orjson.dumps(done._asdict()))


async def _answer_record(host: Host, exchange: Exchange, key: str) -> None:
    record = next(record for record in host.records() if record.key == key)
    await exchange.answer(200, orjson.dumps(asdict(record)))


def _unknown_provider(error: NoSuchProvider) -> HttpProblem:
    return HttpProblem(404, "provider_not_found", str(error), param="key")


def _config_invalid(error: ConfigError) -> HttpProblem:
    message = f"the configuration has {counted(len(error.problems), 'problem')}; nothing was changed"
    problems = [asdict(problem) for problem in error.problems]
    return HttpProblem(422, "config_invalid", message, beside={"problems": problems})
