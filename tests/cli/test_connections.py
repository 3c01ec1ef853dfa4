"""`toolplug connections` next to a running host: who is connected, a link for a user, and the end of a connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from tests.cli.conftest import Run
from tests.cli.process import Serving, serving
from tests.credentials.oauth_server import LISTING, Accounts, serving_oauth

pytestmark = [pytest.mark.mcp, pytest.mark.requirement("I38-connections-command")]

SHARED = "sqlite:///./state.db?shared=true"


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def host(accounts: Accounts, tmp_path: Path) -> Iterator[Serving]:
    """A host with users who sign in, and with its address as that of the links."""
    with serving_oauth(accounts) as url:
        entry: dict[str, Any] = {
            "url": url,
            "prefix": "who",
            "headers": {"Authorization": f"Bearer {LISTING}"},
            "user_auth": {"oauth": {"scopes": ["read"]}},
        }
        brings = {"enabled": True, "user_auth": {"from": "credential:hello"}}
        settings: dict[str, Any] = {
            "store": SHARED,
            "egress": {"allow": ["loopback"]},
            "auth": {"api_keys": [{"key": f"{who}-key", "subject": who} for who in ("ada", "ben")]},
            "mcp_servers": {"who": entry},
            "providers": {"hello": brings},
        }
        (tmp_path / "providers.yaml").write_text(yaml.safe_dump(settings))
        with serving(folder=tmp_path) as service:
            settings["http"] = {"public_url": service.url}  # as an operator would have it, who knows the port
            (tmp_path / "providers.yaml").write_text(yaml.safe_dump(settings))
            while "who__whoami" not in httpx2.get(f"{service.url}/v1/tools", headers=key_of("ada")).text:
                time.sleep(0.05)
            yield service
            service.process.terminate()
            assert service.end() == 0, service.lines


def answer_of(run: Run, *arguments: str) -> Any:
    done = run("connections", *arguments, "--json")
    assert done.code == 0, done.err
    return done.json


def sign_in(link: str) -> None:
    """Press the button of a link, sign in at the issuer, and come back."""
    with httpx2.Client() as browser:
        begun = browser.post(link)
        assert begun.status_code == 303, begun.text
        back = httpx2.get(begun.headers["location"]).headers["location"]
        assert "is connected to who" in browser.get(back).text


def whoami(service: Serving, who: str) -> Any:
    body = {"name": "who.whoami", "arguments": {}}
    return httpx2.post(f"{service.url}/v1/tool-calls", json=body, headers=key_of(who), timeout=30).json()


def key_of(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}-key"}


def test_an_operator_gives_a_link_sees_who_is_connected_and_ends_it(
    run: Run, host: Serving, accounts: Accounts
) -> None:
    service = host.url
    assert answer_of(run, "list") == {"connections": []}
    assert run("connections").out == "nobody is connected\n"
    for who in ("ada", "ben"):
        accounts.user = who
        made = answer_of(run, "link", "who", "--caller", who)
        assert (set(made), made["server"], made["caller"]) == ({"url", "server", "caller", "expires_at"}, "who", who)
        assert made["url"].startswith(f"{service}/connect/")
        assert f"<dd>{who}</dd>" in httpx2.get(made["url"]).text
        sign_in(made["url"])
    assert [whoami(host, who)["output"] for who in ("ada", "ben")] == ["ada", "ben"]
    shown = answer_of(run, "list", "--server", "who")["connections"]
    assert [(each["caller"], each["scopes"]) for each in shown] == [("ada", ["read"]), ("ben", ["read"])]
    assert answer_of(run, "list", "--caller", "ben")["connections"] == shown[1:]
    assert not any(token in str(shown) for token in accounts.tokens)

    assert answer_of(run, "disconnect", "who", "--caller", "ada") == {"server": "who", "caller": "ada", "revoked": True}
    assert len(accounts.revoked) == 1
    assert answer_of(run, "list")["connections"] == shown[1:]
    assert whoami(host, "ben")["output"] == "ben"


MISTAKES = [
    (("link", "nothing", "--caller", "ada"), "no entry 'nothing' has user_auth"),
    (("link", "hello", "--caller", "ada"), "it brings a credential as X-Toolplug-Credential-hello"),
    (("disconnect", "who", "--caller", "eve"), "'eve' of tenant 'default' is not connected to 'who'"),
]


def test_a_mistake_is_named(run: Run, host: Serving, tmp_path: Path) -> None:
    for arguments, says in MISTAKES:
        done = run("connections", *arguments)
        assert (done.code, says in done.err) == (1, True), done.err
    file = tmp_path / "providers.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "http": {}}))
    done = run("connections", "link", "who", "--caller", "ada")
    assert (done.code, "set http.public_url" in done.err) == (1, True), done.err
