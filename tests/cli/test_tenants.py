"""The tenant of a command: an option, a variable, or a file; and the approvals of all tenants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run

HELLO = "providers: {hello: {enabled: true, tools: {hello: ask}}}\nstore: sqlite:///./state.db\n"


@pytest.fixture
def asking(write: Callable[..., Path]) -> None:
    """A configuration in which each call waits for a person."""
    write(HELLO)


@pytest.mark.requirement("C-10-tenant")
def test_the_tenant_is_the_options_else_the_variables_else_the_files(
    asking: None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tenants() -> list[str]:
        return [item["tenant"] for item in run("approvals", "list", "--all-tenants", "--json").json["approvals"]]

    run("call", "hello")
    file = tmp_path / ".toolplug" / "tenant"
    file.parent.mkdir(exist_ok=True)
    file.write_text("of-the-file\n")
    run("call", "hello")
    monkeypatch.setenv("TOOLPLUG_TENANT", "of-the-variable")
    run("call", "hello")
    run("call", "hello", "--tenant", "of-the-option")
    assert tenants() == ["default", "of-the-file", "of-the-variable", "of-the-option"]


@pytest.mark.requirement("C-10-tenant")
@pytest.mark.parametrize("content", [b"", b"\n \n", b"two\nlines\n", b"\xff"])
def test_a_file_that_names_no_tenant_is_a_clear_error(asking: None, run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / ".toolplug" / "tenant"
    file.parent.mkdir()
    file.write_bytes(content)
    done = run("approvals", "list")
    assert done.code == 2
    assert f"{file} must hold the name of one tenant, in one line; or remove the file" in done.err


@pytest.mark.requirement("C-10-approvals-all")
def test_the_operator_lists_the_approvals_of_all_tenants_and_decides_one(asking: None, run: Run) -> None:
    run("call", "hello", "name=Ada", "--tenant", "one")
    run("call", "hello", "name=Bob", "--tenant", "two")
    assert run("approvals", "list").out == "no call waits for approval\n"
    assert [line.split()[0] for line in run("approvals", "list", "-A").out.splitlines()] == ["TENANT", "one", "two"]
    ticket = run("approvals", "list", "-A", "--json").json["approvals"][1]
    refused = run("approvals", "approve", ticket["id"])
    assert (refused.code, "--tenant names the tenant of the call" in refused.err) == (1, True)
    assert run("approvals", "approve", ticket["id"], "--tenant", "two").code == 0
    assert run("call", "hello", "name=Bob", "--tenant", "two").out == "Hello, Bob!\n"


@pytest.mark.requirement("C-10-quiet")
def test_quiet_logs_errors_only(run: Run, write: Callable[..., Path]) -> None:
    write("providers: {hello: {enabled: true}, again: {type: hello, enabled: true, mount: /again}}")
    assert "WARNING" in run("tools").err
    assert run("tools", "-q").err == ""
