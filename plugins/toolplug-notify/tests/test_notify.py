"""What a receiver gets, how it is signed, how often, and that no call waits for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import time
from typing import Any

import pytest

from toolplug import ConfigError, Host, Principal, Ticket, ToolResult, open_host
from toolplug_notify.message import of_several, of_ticket, signature
from toolplug_notify.settings import Settings, key_of

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I35-notify")]

PERSON = Principal("person", scopes=frozenset({"approvals:write"}))
ARGUMENTS = {"name": "Ada"}
TICKET = Ticket("id1", "query", "d", ARGUMENTS, "ann", None, False, "waiting", "2026-01-01T00:00:00Z", None, None, "t")


async def ask(host: Host, name: str = "Ada", tenant: str = "default") -> ToolResult:
    tools = host.executor_for(Principal("ann", tenant, scopes=frozenset({"tools:call"})))
    result = await tools.call("hello", name=name)
    assert result.status == "denied"
    return result


def id_of(result: ToolResult) -> str:
    approval: Any = result.metadata["approval"]
    return str(approval["id"])


def test_the_signature_is_that_of_the_library_of_standard_webhooks() -> None:
    key = key_of(
        Settings.model_validate({"url": "http://a", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}).secret
    )
    made = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    # Made by standardwebhooks 1.1.0 for these values, which are those of the examples of its documentation.
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.process
async def test_a_receiver_is_told_of_a_call_that_waits_and_of_its_decision(serve: Any, receiver: Any) -> None:
    async with serve(console="https://tools.example/console/") as host:
        refused = await ask(host)
        ticket = id_of(refused)
        (waiting,) = await receiver.messages(1)
        await host.approvals.decide(ticket, "approve", PERSON)
        waiting, decided = await receiver.messages(2)
    link = f"https://tools.example/console#/approvals/{ticket}"
    assert waiting == {
        "event": "approval.waiting",
        "text": f"`ann` asks to call `hello`, which waits until {waiting['expires_at']}: {link}",
        "id": ticket,
        "tool": "hello",
        "caller": "ann",
        "tenant": "default",
        "agent": None,
        "session": False,
        "expires_at": refused.metadata["approval"]["expires_at"],
        "link": link,
    }
    assert (decided["event"], decided["decision"], decided["decided_by"]) == ("approval.decided", "approved", "person")
    assert decided["text"] == f"The call of `hello` for `ann` was approved by `person`: {link}"
    first = receiver.got[0]
    headers, body = first.headers, first.body
    assert (first.path, headers["content-type"], abs(time.time() - int(headers["webhook-timestamp"])) < 60) == (
        "/hooks/channel?key=k",
        "application/json",
        True,
    )
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    made = hmac.digest(base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), signed, hashlib.sha256)
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"


@pytest.mark.process
async def test_arguments_are_sent_only_if_the_file_says_so_and_without_a_secret_nothing_is_signed(
    serve: Any, receiver: Any
) -> None:
    async with serve(with_arguments=True, secret=None) as host:
        await ask(host)
        (waiting,) = await receiver.messages(1)
    assert (waiting["arguments"], waiting["link"]) == (ARGUMENTS, None)
    assert "webhook-signature" not in receiver.got[0].headers
    large = TICKET._replace(arguments={"name": "x" * 20_000})
    assert (
        of_ticket("approval.waiting", large, console=None, with_arguments=True).fields["arguments_omitted_bytes"]
        > 20_000
    )  # type: ignore[operator]


@pytest.mark.process
async def test_a_tenant_gets_one_message_a_second_and_the_rest_as_a_digest(serve: Any, receiver: Any) -> None:
    async with serve() as host:
        first = id_of(await ask(host))
        await receiver.messages(1)
        ids = [id_of(await ask(host, f"number {number}")) for number in range(20)]
        await host.approvals.decide(ids[0], "deny", PERSON)
        far = id_of(await ask(host, tenant="far"))
        _, other, digest = await receiver.messages(3)
    assert (receiver.got[0].fields["id"], other["id"], other["tenant"]) == (first, far, "far")
    assert (digest["id"], digest["waiting"], digest["decided"], len(digest["ids"])) == (None, 19, 1, 20)
    assert (digest["tool"], digest["caller"], digest["event"]) == ("hello", "ann", "approval.waiting")
    assert digest["text"] == "19 calls wait for approval and 1 was decided in tenant `default`."
    assert len(receiver.got) == 3


@pytest.mark.process
async def test_a_message_is_tried_three_times_with_one_id_and_a_redirect_is_not_followed(
    serve: Any, receiver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [(503, {}), (429, {}), (204, {})]
    async with serve() as host:
        await ask(host)
        await receiver.messages(3)
        assert len({each.headers["webhook-id"] for each in receiver.got}) == 1
    receiver.got.clear()
    receiver.answers = [(302, {"location": "/elsewhere"})]
    async with serve() as host:
        await ask(host)
        await receiver.messages(1)
    assert [each.path for each in receiver.got] == ["/hooks/channel?key=k"]
    assert "redirects are not followed" in caplog.text


@pytest.mark.process
async def test_a_receiver_that_is_away_costs_no_call_anything_and_the_log_has_no_address(
    serve: Any, receiver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(url="http://127.0.0.1:9/private-path") as host:
        for number in range(5):
            await ask(host, f"number {number}")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["does not answer" in record.getMessage() for record in errors] == [True]
    assert "private-path" not in caplog.text


def test_names_neither_mark_up_a_message_nor_mention_anybody() -> None:
    bad = TICKET._replace(subject="<!channel> @all `x`\n" + "y" * 300, tool="query\u202e")
    text = str(of_ticket("approval.waiting", bad, console=None, with_arguments=False).fields["text"])
    assert not {"<", "@", "\n", "\u202e"} & set(text)
    assert (text.count("`"), len(text) < 300) == (4, True)


def test_a_digest_names_at_most_a_hundred_and_counts_what_was_missed() -> None:
    told = [("approval.waiting", TICKET._replace(id=str(number))) for number in range(200)]
    fields = of_several(told, 7, console=None).fields  # type: ignore[arg-type]
    assert (len(fields["ids"]), fields["waiting"], fields["missed"]) == (100, 200, 7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "url"),
        ({"url": "ftp://a"}, "should be a URL"),
        ({"url": "https://user:word@a"}, "no user"),
        ({"url": "https://a", "secret": "whsec_%"}, "should be base64"),
        ({"url": "https://a", "secret": "whsec_YWJj"}, "should be 24 to 64 bytes in base64, and has 3"),
        ({"url": "https://a", "more": 1}, "more"),
    ],
)
def test_wrong_settings_are_refused_with_the_fix(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as failed:
        open_host({"providers": {"notify": {"enabled": True, **settings}}}, environ={})._read()
    assert "word@" not in str(failed.value)
