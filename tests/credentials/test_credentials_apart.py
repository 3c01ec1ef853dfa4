"""A provider in a process of its own has the credential of the caller whose call it runs, and asks the host for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from tests.credentials import acting

from toolplug import CallContext, Principal, SignInEndpoints, ToolCall, ToolResult, open_host
from toolplug.errors import ConfigError
from toolplug.providers.plugins.registration import PluginManager

pytestmark = [pytest.mark.anyio, pytest.mark.process]

AUTH = {"from": "credential:shop", "header": "X-Key", "format": "key {}"}


@pytest.mark.requirement("I38-provider")
async def test_its_process_gets_the_credential_of_each_call_and_the_refusal_with_its_header(tmp_path: Path) -> None:
    run = {"type": f"{acting.__file__}:Acting", "enabled": True, "run": {"process": True}, "user_auth": AUTH}
    config = {"store": f"sqlite:///{tmp_path}/state.db", "providers": {"shop": run}}
    (tmp_path / "providers.yaml").write_text(json.dumps(config))

    async with open_host(tmp_path / "providers.yaml") as host:

        async def headers(credential: str | None, refused: str = "") -> ToolResult:
            given = {} if credential is None else {"shop": credential}
            call = ToolCall("1", "headers", {"refused": refused})
            return await host.executor_for(ADA).execute(call, CallContext(ADA, credentials=given))

        assert (await headers("mine")).structured == {"X-Key": "key mine"}
        missing = await headers(None)
        assert (missing.status, missing.metadata["code"]) == ("unavailable", "credential_needed")
        assert missing.metadata["credential"] == {"header": "X-Toolplug-Credential-shop"}
        assert "refuses the credential" in (await headers("mine", "mine")).output


@pytest.mark.requirement("I38-document-endpoints")
async def test_its_process_names_where_callers_sign_in(tmp_path: Path) -> None:
    entry = {"enabled": True, "run": {"process": True}, "user_auth": {"oauth": {"client": {"id": "us"}}}}
    config = {"store": f"sqlite:///{tmp_path}/state.db"}
    names, lacks = ({**entry, "type": f"{acting.__file__}:{name}"} for name in ("NamesSignIn", "Acting"))
    (tmp_path / "providers.yaml").write_text(json.dumps({**config, "providers": {"shop": names}}))
    async with open_host(tmp_path / "providers.yaml") as host:
        found = cast("PluginManager", host.registry.plugins).sign_in_of("shop")
        assert found == SignInEndpoints("", "https://id.example/auth", "https://id.example/token", "", ("a",))
    (tmp_path / "providers.yaml").write_text(json.dumps({**config, "providers": {"shop": lacks}}))
    with pytest.raises(ConfigError, match="needs issuer: this type of provider names none"):
        async with open_host(tmp_path / "providers.yaml"):
            pass


ADA = Principal("ada", scopes=frozenset({"tools:call"}))
