"""How an application begins, ends and fails."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.fixtures import Row, application, entered, waited, waiting
from tests.client.scripted_host import CODE, TOKEN, Said, ScriptedHost, refused

from toolplug.client import Application, Backoff, HostRefused, HostUnreachable, SessionOver

pytestmark = pytest.mark.anyio

WRONG = {"plugin_type": 5, "environment": "classroom", "capabilities": ["storage"]}

OVER = {"code": "session_ended", "message": "the session was ended"}


@pytest.mark.process
@pytest.mark.requirement("C-12-client", "I3-5-python-client")
async def test_entering_creates_a_session_and_registers_functions_as_tools(host: ScriptedHost) -> None:
    app = application(host, api_key="alice-key", ttl_s=60)

    @app.tool(read_only=True, requires=["storage"])
    async def add_rows(rows: list[Row]) -> int:
        """Add rows to the table."""
        return len(rows)

    async with entered(app, host) as stream:
        assert (app.code, app.token, app.refused) == (CODE, TOKEN, {})
        assert stream.heard.headers["authorization"] == f"Bearer {TOKEN}"
    created, registered, _, ended = host.heard
    assert (created.body, created.headers["authorization"]) == (
        {"pluginType": "table", "ttlSeconds": 60},
        "Bearer alice-key",
    )
    assert registered.headers["authorization"] == f"Bearer {TOKEN}"
    assert registered.body["pluginType"] == "table"
    (tool,) = registered.body["tools"]
    assert tool["name"] == "add_rows"
    assert tool["description"] == "Add rows to the table."
    assert list(tool["inputSchema"]["properties"]) == ["rows"]
    assert tool["annotations"] == {"readOnlyHint": True}
    assert tool["requires"] == ["storage"]
    assert (ended.method, ended.path, ended.headers["authorization"]) == (
        "DELETE",
        f"/api/sessions/{CODE}",
        "Bearer alice-key",
    )
    with pytest.raises(RuntimeError, match="not entered"):
        app.code  # noqa: B018


@pytest.mark.process
async def test_the_end_of_the_session_cancels_what_runs(host: ScriptedHost) -> None:
    app = application(host)
    began, cancelled = waiting(app)

    async with entered(app, host) as stream:
        await stream.request("r1", "wait")
        await waited(began)
        await stream.send("error", OVER, 1)
        with pytest.raises(SessionOver):
            await app.serve()
        assert cancelled.is_set()


async def left_when_it_was_over(app: Application, host: ScriptedHost, error: Exception | None = None) -> None:
    async with entered(app, host) as stream:
        await stream.send("error", OVER, 1)
        await stream.left()
        if error is not None:
            raise error


@pytest.mark.process
async def test_leaving_says_why_the_session_was_over_where_nobody_was_told(host: ScriptedHost) -> None:
    with pytest.raises(SessionOver, match="the session was ended"):
        await left_when_it_was_over(application(host), host)
    with pytest.raises(LookupError):
        await left_when_it_was_over(application(host), host, LookupError())


@pytest.mark.process
async def test_without_a_host_entering_fails_at_once(host: ScriptedHost) -> None:
    host.says(
        "sessions", Said(0), Said(200, b"<html>"), refused(503, "starting", "it starts"), refused(401, "no", "who")
    )
    for error, text in [
        (HostUnreachable, "no host answers at http://127.0.0.1"),
        (HostUnreachable, "is no toolplug host"),
        (HostUnreachable, "cannot answer now: it starts"),
        (HostRefused, "^who$"),
    ]:
        with pytest.raises(error, match=text):
            async with application(host):
                pass
    assert len(host.heard) == 4


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://here", "http://", "http://host:port", ""])
def test_a_url_that_no_host_has_is_told_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL of a host"):
        Application(url, plugin_type="table")


@pytest.mark.process
async def test_a_registration_that_fails_ends_the_session_that_was_created(host: ScriptedHost) -> None:
    failed = [{"toolName": "a", "error": "shadows a tool of the host", "recoverable": True}]
    said = {"error": {"code": "registration_failed", "message": "no tool was taken"}, "failedTools": failed}
    host.says("register-tools", Said(422, said))
    with pytest.raises(HostRefused, match="no tool was taken: a: shadows a tool of the host"):
        async with application(host):
            pass
    assert [heard.method for heard in host.heard] == ["POST", "POST", "DELETE"]


@pytest.mark.process
async def test_a_session_that_is_kept_outlives_its_application_but_no_failed_registration(host: ScriptedHost) -> None:
    app = application(host, keep=True)
    async with entered(app, host):
        pass
    assert "DELETE" not in {heard.method for heard in host.heard}
    host.says("register-tools", refused(422, "invalid_capability"))
    with pytest.raises(HostRefused):
        async with app:
            pass
    assert host.heard[-1].method == "DELETE"


@pytest.mark.process
async def test_it_may_be_entered_again_but_not_twice(host: ScriptedHost) -> None:
    app = application(host)
    for _ in range(2):
        async with entered(app, host):
            with pytest.raises(RuntimeError, match="entered already"):
                async with app:
                    pass
    assert len(host.asked("sessions")) == 2


def test_no_secret_stands_in_what_is_shown_of_it() -> None:
    app = Application("http://127.0.0.1", plugin_type="table", api_key="secret-key")
    assert "secret-key" not in repr(app)


def test_a_pace_is_honest_by_default() -> None:
    assert Backoff() == Backoff(first_s=0.5, longest_s=30.0, silence_s=45.0, gather_s=0.02, answer_s=30.0, call_s=300.0)


@pytest.mark.parametrize("name", WRONG)
def test_a_description_of_another_type_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"Application: {name} should be .*, not "):
        Application("http://127.0.0.1:1", **{"plugin_type": "table", name: WRONG[name]})  # type: ignore[arg-type]


def test_a_description_may_be_a_mapping() -> None:
    described: dict[str, Any] = {"environment": {"version": "1"}, "capabilities": [{"type": "storage"}]}
    Application("http://127.0.0.1:1", plugin_type="table", **described)
