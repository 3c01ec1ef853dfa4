"""Providers: their states, switches and the reasons of a call."""

from __future__ import annotations

import httpx2
import pytest

pytestmark = [pytest.mark.wire, pytest.mark.anyio, pytest.mark.requirement("I17-6-wire")]


async def test_each_provider_has_a_state(client: httpx2.AsyncClient) -> None:
    for _ in range(3):
        providers = {each["key"]: each for each in (await client.get("/v1/providers")).json()["providers"]}
        assert (providers["hello"]["state"], providers["hello"]["tools"]) == ("active", ["hello"])
        assert providers["off"]["state"] == "disabled"
        assert "installed-not-enabled" in {each["state"] for each in providers.values()}


@pytest.mark.parametrize("switch", ["enable", "disable"])
async def test_a_provider_of_no_entry_is_not_found(admin: httpx2.AsyncClient, switch: str) -> None:
    assert (await admin.post(f"/v1/providers/nothing/{switch}")).status_code == 404


async def test_a_reload_keeps_what_has_not_changed(admin: httpx2.AsyncClient) -> None:
    answer = await admin.post("/v1/reload")
    assert answer.status_code == 200
    assert '"started":["' not in answer.text.replace(" ", "")


async def test_the_configuration_is_shown_without_secrets(admin: httpx2.AsyncClient) -> None:
    shown = await admin.get("/v1/configuration")
    assert shown.status_code == 200
    assert "wire-key" not in shown.text


@pytest.mark.parametrize(
    ("query", "found", "callable_"),
    [
        ("tool=hello", True, True),
        ("tool=never", True, False),
        ("tool=nothing", False, False),
        ("tool=greet.hello&agent=greeter", True, True),
        ("tool=hello&agent=greeter", False, False),
    ],
)
async def test_it_is_explained_why_a_call_would_run(
    admin: httpx2.AsyncClient, query: str, found: bool, callable_: bool
) -> None:
    for _ in range(3):
        told = (await admin.get(f"/v1/explain?{query}")).json()
        assert (told["found"], told["callable"]) == (found, callable_), told
