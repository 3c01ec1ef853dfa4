"""A provider in a process of its own has the credential of the caller whose call it runs, and asks the host for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.credentials import acting

from toolplug import CallContext, Principal, ToolCall, ToolResult, open_host

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


ADA = Principal("ada", scopes=frozenset({"tools:call"}))
