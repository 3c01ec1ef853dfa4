"""`/v1/providers` and `/v1/reload`: what an operator sees and changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from tests.host.conftest import Package
from tests.http.conftest import ALICE, ROOT, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

Write = Callable[[str], Path]


@pytest.mark.requirement("C-5-providers-fields", "C-5-state-active", "C-5-state-installed")
async def test_every_provider_is_shown_with_its_state_and_what_to_do(client: AsyncClient) -> None:
    shown = (await client.get("/v1/providers", headers=ALICE)).json()["providers"]
    assert set(shown[0]) == {
        "key", "type", "state", "reason", "fix", "tools", "routes", "distribution", "version",
    }  # fmt: skip
    assert (shown[0]["key"], shown[0]["state"], shown[0]["distribution"]) == ("sample", "active", "toolplug-sample")
    assert "echo" in shown[0]["tools"]
    assert "GET /v1/samples" in shown[0]["routes"]
    others = shown[1:]
    assert all(other["state"] == "installed-not-enabled" and other["fix"] for other in others)


@pytest.mark.requirement("C-5-enable", "C-5-state-disabled")
async def test_a_provider_is_switched_off_and_on(client: AsyncClient) -> None:
    off = await client.post("/v1/providers/sample/disable", headers=ROOT)
    assert (off.status_code, off.json()["state"], off.json()["tools"]) == (200, "disabled", [])
    assert off.json()["fix"] == "POST /v1/providers/sample/enable, or reload"
    assert (await client.get("/v1/providers", headers=ALICE)).json()["providers"][0] == off.json()
    on = await client.post("/v1/providers/sample/enable", headers=ROOT)
    assert (on.status_code, on.json()["state"]) == (200, "active")


@pytest.mark.requirement("C-5-enable-unknown")
async def test_a_key_without_entry_is_404(client: AsyncClient) -> None:
    for action in ("enable", "disable"):
        answer = await client.post(f"/v1/providers/sampel/{action}", headers=ROOT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "provider_not_found")
        assert "sample" in answer.json()["error"]["message"]


@pytest.mark.requirement("C-5-enable-invalid")
async def test_enabling_with_a_wrong_configuration_is_422_with_every_problem(sample_package: None) -> None:
    providers = {"sample": {"enabled": False, "fails": "maybe", "colour": "red"}}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        answer = await client.post("/v1/providers/sample/enable", headers=ROOT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "config_invalid")
        problems = answer.json()["problems"]
        assert {problem["path"] for problem in problems} == {"providers.sample.fails", "providers.sample.colour"}
        assert all(
            set(problem) == {"file", "line", "column", "path", "code", "message", "hint"} for problem in problems
        )


@pytest.mark.requirement("C-5-reload-route", "H-configuration-bad-reload", "C-5-audit")
async def test_a_reload_applies_a_good_file_and_leaves_everything_at_a_bad_one(
    sample_package: None, config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    keys = "auth: {api_keys: [{key: root-key, subject: root, scopes: [admin, operator]}]}"
    path = config(f"{keys}\nproviders: {{sample: {{enabled: true}}}}")
    async with open_host(path, environ={}) as host, client_of(create_app(host)) as client:
        config(f"{keys}\nproviders: {{sample: {{enabled: true}}, again: {{enabled: true, type: samples}}}}")
        bad = await client.post("/v1/reload", headers=ROOT)
        assert (bad.status_code, bad.json()["error"]["code"]) == (422, "config_invalid")
        assert [problem["path"] for problem in bad.json()["problems"]] == ["providers.again.type"]
        assert (await client.post("/v1/tool-calls", headers=ROOT, json={"name": "whoami"})).json()[
            "status"
        ] == "success"
        new_keys = keys.replace("root-key", "new-key")
        config(f"{new_keys}\nhttp: {{max_body: 100}}\nproviders: {{sample: {{enabled: false}}}}")
        good = await client.post("/v1/reload", headers=ROOT)
        assert (good.status_code, good.json()) == (200, {"started": [], "kept": [], "stopped": ["sample"]})
        assert (await client.get("/v1/tools", headers=ROOT)).status_code == 401, "the key is none any more"
        assert (await client.get("/v1/tools", headers={"X-API-Key": "new-key"})).json() == {"tools": []}
        large = await client.post("/v1/tool-calls", headers={"X-API-Key": "new-key"}, content=b"x" * 101)
        assert large.status_code == 413
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]
    reloads = [(line["outcome"], line["principal"]) for line in lines if line["event"] == "config.reload"]
    assert reloads == [("refused", "root"), ("done", "root")]


FAULTY = """
    from toolplug import FunctionProvider, tool

    class First(FunctionProvider):
        @tool
        async def mine(self) -> str:
            return "first"

    class Second(First):
        pass

    class Unstartable(FunctionProvider):
        async def start(self, site):
            raise RuntimeError("no connection")
"""


@pytest.mark.requirement(
    "C-5-state-import-failed",
    "C-5-state-start-failed",
    "C-5-state-shadowed",
    "C-5-state-disabled",
    "C-3-start-text-admin",
)
async def test_a_provider_that_does_not_run_is_shown_with_its_reason_and_fix(package: Package) -> None:
    points = {
        "first": "faulty_mod:First",
        "second": "faulty_mod:Second",
        "unstartable": "faulty_mod:Unstartable",
        "unimportable": "no_such_module:Nothing",
        "off": "faulty_mod:First",
    }
    package("toolplug-faulty", points, faulty_mod=FAULTY)
    providers: dict[str, object] = {name: {"enabled": name != "off", "required": False} for name in points}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        shown = (await client.get("/v1/providers", headers=ALICE)).json()["providers"]
        states = {record["key"]: record for record in shown}
        assert {key: states[key]["state"] for key in points} == {
            "first": "active",
            "second": "shadowed",
            "unstartable": "start-failed",
            "unimportable": "import-failed",
            "off": "disabled",
        }
        assert all(states[key]["reason"] and states[key]["fix"] for key in points if key not in {"first", "off"})
        assert "no connection" not in states["unstartable"]["reason"]
        assert "No module named" not in states["unimportable"]["reason"]
        operator = (await client.get("/v1/providers", headers=ROOT)).json()["providers"]
        reasons = {record["key"]: record["reason"] for record in operator}
        assert "start() raised RuntimeError: no connection" in reasons["unstartable"]
        assert "importing no_such_module raised ModuleNotFoundError" in reasons["unimportable"]
        assert (await client.get("/readyz")).status_code == 200


async def test_the_text_of_what_a_start_raised_is_for_admin_only(package: Package) -> None:
    points = {"unstartable": "faulty_mod:Unstartable", "unimportable": "broken_mod:Nothing"}
    package("toolplug-faulty", points, faulty_mod=FAULTY, broken_mod="raise ImportError('secret-path')")
    providers: dict[str, object] = {name: {"enabled": True, "required": False} for name in points}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        for credentials, operates in ((ALICE, False), (ROOT, True)):
            shown = await client.get("/v1/providers", headers=credentials)
            reasons = {record["key"]: record["reason"] for record in shown.json()["providers"]}
            assert ("no connection" in shown.text, "secret-path" in shown.text) == (operates, operates)
            assert reasons["unstartable"].startswith(
                "provider 'unstartable' (toolplug-faulty 1.0): start() raised Runtime"
            )
            assert "importing broken_mod raised ImportError" in reasons["unimportable"]
        readers = (await client.get("/v1/providers", headers=ALICE)).json()["providers"]
        assert any(record["reason"].endswith("start() raised RuntimeError at faulty_mod:14") for record in readers)
        assert "summary" not in readers[0]


async def test_a_reader_sees_the_line_of_the_package_that_called_the_failing_library(package: Package) -> None:
    code = """
        import json
        from toolplug import FunctionProvider
        class P(FunctionProvider):
            async def start(self, site):
                json.loads("no")
    """
    points = {"unstartable": "calling_mod:P", "unimportable": "lacking_mod:P"}
    package("toolplug-calling", points, calling_mod=code, lacking_mod="import json\n\njson.loads('no')")
    providers: dict[str, object] = {name: {"enabled": True, "required": False} for name in points}
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        shown = (await client.get("/v1/providers", headers=ALICE)).json()["providers"]
        reasons = {record["key"]: record["reason"] for record in shown}
        assert reasons["unstartable"].endswith("start() raised JSONDecodeError at calling_mod:6")
        assert reasons["unimportable"].endswith("importing lacking_mod raised JSONDecodeError at lacking_mod:3")


@pytest.mark.requirement("I17-2-switches", "I17-2-unequal-configuration")
async def test_processes_of_one_store_are_listed_and_reloaded_together(sample_package: None, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db?shared=true"
    other = settings(store=store, providers={"sample": {"enabled": True}})
    async with (
        open_host(settings(store=store), environ={}) as host,
        open_host(other, environ={}) as there,
        client_of(create_app(host)) as client,
    ):
        processes = (await client.get("/v1/providers", headers=ROOT)).json()["processes"]
        assert {item["process"] for item in processes} == {host.admin.process, there.admin.process}
        assert len({item["configuration"] for item in processes}) == 2
        assert "processes" not in (await client.get("/v1/providers", headers=ALICE)).json()
        done = {"started": [], "kept": ["sample"], "stopped": []}
        answer = (await client.post("/v1/reload", headers=ROOT)).json()
        each = [{"process": name, **done, "problems": []} for name in (host.admin.process, there.admin.process)]
        assert answer == {**done, "processes": each}
