"""What is refused before anything else is looked at: Host, header limits, Origin, foreign peers, large bodies."""

from __future__ import annotations

import json

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE, client_of, settings
from tests.http.conversation import Conversation, Headers

from toolplug import Host, open_host
from toolplug.http import create_app
from toolplug.http.bodies.request_body import DEFAULT_MAX_BODY, MAX_FILE_BODY
from toolplug.http.request_checks import MAX_HEADER_BYTES, MAX_HEADERS, SINGLE

pytestmark = pytest.mark.anyio

KEY = (b"x-api-key", b"alice-key")
LOCAL = (b"host", b"localhost")


async def asked(host: Host, headers: Headers, **more: object) -> Conversation:
    """What the list of tools answers to these headers."""
    conversation = Conversation("GET", "/v1/tools", headers=headers, **more)  # type: ignore[arg-type]
    return await conversation.held_with(create_app(host))


def code(conversation: Conversation) -> str:
    return json.loads(conversation.body)["error"]["code"]


@pytest.mark.requirement("C-5-hosts-default", "H-trust-bad-host")
@pytest.mark.parametrize(
    ("bound", "named", "status"),
    [
        ("127.0.0.1", b"127.0.0.1", 200),
        ("127.0.0.1", b"127.0.0.1:8080", 200),
        ("127.0.0.1", b"localhost:1", 200),
        ("127.0.0.1", b"LOCALHOST", 200),
        ("::1", b"[::1]:8080", 200),
        ("192.168.7.7", b"192.168.7.7:80", 200),
        ("127.0.0.1", b"192.168.7.7", 421),
        ("127.0.0.1", b"evil.example", 421),
        ("127.0.0.1", b"localhost.evil.example", 421),
        ("127.0.0.1", b"localhost@evil.example", 421),
        ("127.0.0.1", b"127.0.0.1:8080:9", 421),
        ("127.0.0.1", b"127.0.0.1\n", 421),
        ("127.0.0.1", b"localhost:", 421),
        ("127.0.0.1", b"localhost/x", 421),
        ("127.0.0.1", b"", 421),
        ("127.0.0.1", "löcalhost".encode(), 421),
    ],
)
async def test_the_bound_address_and_localhost_are_hosts_and_nothing_else_is(
    host: Host, bound: str, named: bytes, status: int
) -> None:
    answer = await asked(host, [(b"host", named), KEY], server=(bound, 8080))
    assert answer.status == status
    assert status == 200 or code(answer) == "host_not_allowed"


@pytest.mark.requirement("H-trust-bad-host")
@pytest.mark.parametrize("hosts", [[], [LOCAL, LOCAL], [LOCAL, (b"host", b"evil.example")]])
async def test_a_missing_or_doubled_host_is_refused(host: Host, hosts: list[tuple[bytes, bytes]]) -> None:
    answer = await asked(host, [*hosts, KEY])
    assert (answer.status, code(answer)) == (421, "host_not_allowed")


@pytest.mark.requirement("C-5-hosts-other")
@pytest.mark.parametrize("allowed", ["tools.example", "Tools.Example:443"])
async def test_a_host_that_the_operator_lists_is_let_in(sample_package: None, allowed: str) -> None:
    async with open_host(settings(http={"allowed_hosts": [allowed]}), environ={}) as host:
        assert (await asked(host, [(b"host", b"tools.example:8443"), KEY])).status == 200
        assert (await asked(host, [(b"host", b"www.tools.example"), KEY])).status == 421


@pytest.mark.requirement("C-5-origin")
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (b"http://localhost", 200),
        (b"https://localhost", 200),
        (b"https://listed.example", 200),
        (b"https://LISTED.example", 200),
        (b"http://listed.example", 403),
        (b"http://localhost:3000", 403),
        (b"https://evil.example", 403),
        (b"https://listed.example.evil.example", 403),
        (b"null", 403),
        (b"", 403),
    ],
)
async def test_a_page_of_another_site_may_call_only_where_it_is_listed(
    sample_package: None, origin: bytes, status: int
) -> None:
    async with open_host(settings(http={"allowed_origins": ["https://listed.example/"]}), environ={}) as host:
        answer = await asked(host, [LOCAL, KEY, (b"origin", origin)])
        assert answer.status == status
        assert status == 200 or code(answer) == "origin_not_allowed"


@pytest.mark.requirement("H-trust-headers")
async def test_a_hundred_headers_pass_and_one_more_does_not(host: Host) -> None:
    fill = [(b"x-fill-%d" % number, b"") for number in range(MAX_HEADERS - 2)]
    assert (await asked(host, [LOCAL, KEY, *fill])).status == 200
    answer = await asked(host, [LOCAL, KEY, *fill, (b"x-more", b"")])
    assert (answer.status, code(answer)) == (431, "headers_too_large")


@pytest.mark.requirement("H-trust-headers")
async def test_headers_of_32_kib_pass_and_one_byte_more_does_not(host: Host) -> None:
    rest = MAX_HEADER_BYTES - sum(len(name) + len(value) for name, value in [LOCAL, KEY]) - len(b"x-fill")
    assert (await asked(host, [LOCAL, KEY, (b"x-fill", b"x" * rest)])).status == 200
    answer = await asked(host, [LOCAL, KEY, (b"x-fill", b"x" * (rest + 1))])
    assert (answer.status, code(answer)) == (431, "headers_too_large")


@pytest.mark.requirement("C-5-edge-settings")
async def test_the_limit_of_a_head_is_that_of_the_configuration(sample_package: None) -> None:
    async with open_host(settings(http={"edge": {"head_bytes": "64KiB"}}), environ={}) as host:
        assert (await asked(host, [LOCAL, KEY, (b"x-fill", b"x" * 60_000)])).status == 200
        assert (await asked(host, [LOCAL, KEY, (b"x-fill", b"x" * 66_000)])).status == 431


@pytest.mark.requirement("C-5-content-encoding")
async def test_an_encoded_body_is_refused_before_it_is_read(host: Host) -> None:
    gzip = [LOCAL, KEY, (b"content-encoding", b"gzip")]
    for path in ("/v1/tools", "/v1/samples"):
        answer = await Conversation("GET", path, headers=gzip).held_with(create_app(host))
        assert (answer.status, code(answer)) == (415, "unsupported_media_type")
        assert json.loads(answer.body)["error"]["param"] == "Content-Encoding"
    answer = await Conversation("GET", "/v1/nowhere", headers=gzip).held_with(create_app(host))
    assert (answer.status, code(answer)) == (404, "route_not_found")


OWN = [b"x-toolplug-credential-shop", b"x-toolplug-agent", b"toolplug-principal", b"toolplug-via", b"mcp-session-id"]


@pytest.mark.parametrize("name", [*sorted(SINGLE), *OWN])
async def test_a_header_that_must_not_stand_twice_is_refused_when_it_does(host: Host, name: bytes) -> None:
    answer = await asked(host, [LOCAL, KEY, (name, b"1"), (name, b"1")])
    assert (answer.status, code(answer)) == (400, "invalid_request")
    assert json.loads(answer.body)["error"]["param"] == name.decode()


@pytest.mark.requirement("C-5-no-auth", "C-5-loopback-only", "C-5-no-auth-bind")
@pytest.mark.parametrize(
    ("peer", "server", "status"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 80), 200),
        (("127.8.8.8", 1), ("127.0.0.1", 80), 200),
        (("::1", 1), ("::1", 80), 200),
        (("::ffff:127.0.0.1", 1), ("127.0.0.1", 80), 200),
        (("127.0.0.1", 1), ("tests", None), 200),
        (("10.0.0.9", 1), ("127.0.0.1", 80), 403),
        (("::ffff:10.0.0.9", 1), ("127.0.0.1", 80), 403),
        (("127.0.0.1", 1), ("10.0.0.1", 80), 403),
        (("evil.example", 1), ("127.0.0.1", 80), 403),
        (None, ("127.0.0.1", 80), 403),
    ],
)
async def test_a_host_without_auth_serves_its_own_machine_only(
    sample_package: None, peer: tuple[str, int] | None, server: tuple[str, int | None], status: int
) -> None:
    async with open_host(settings(auth=None), environ={}) as host:
        answer = await asked(host, [LOCAL], peer=peer, server=server)
        assert answer.status == status
        assert status == 200 or code(answer) == "loopback_only"


@pytest.mark.requirement("C-5-loopback-only")
@pytest.mark.parametrize(
    ("forwarded", "status"),
    [(b"127.0.0.1, ::1", 200), (b"203.0.113.9", 403), (b"203.0.113.9, 127.0.0.1", 403), (b"nonsense", 403)],
)
async def test_a_host_without_auth_serves_nobody_from_elsewhere_through_a_local_proxy(
    sample_package: None, forwarded: bytes, status: int
) -> None:
    async with open_host(settings(auth=None), environ={}) as host:
        answer = await asked(host, [LOCAL, (b"x-forwarded-for", forwarded)])
        assert answer.status == status


@pytest.mark.requirement("C-5-no-auth")
async def test_the_caller_of_a_host_without_auth_is_anonymous_with_every_scope_and_the_log_says_so(
    sample_package: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host(settings(auth=None), environ={}) as host, client_of(create_app(host)) as client:
        called = await client.post("/v1/tool-calls", json={"name": "whoami"})
        assert called.json()["structured"]["subject"] == "anonymous"
        assert called.json()["structured"]["tenant"] == "default"
        assert (await client.post("/v1/reload")).status_code == 200
        assert (await client.post("/v1/tool-calls", json={"name": "whoami"})).status_code == 200
    said = [record.message for record in caplog.records if record.message.startswith("no auth")]
    assert said == [
        "no auth is configured: every caller is anonymous and may do everything; only this machine is served"
    ]


@pytest.mark.requirement("C-5-insecure")
async def test_insecure_no_auth_lets_anybody_in(sample_package: None) -> None:
    async with open_host(settings(auth=None), environ={}) as host:
        async with client_of(create_app(host, insecure_no_auth=True), peer="10.0.0.9") as client:
            assert (await client.get("/v1/tools")).status_code == 200
        async with client_of(create_app(host), peer="10.0.0.9") as client:
            assert (await client.get("/healthz")).status_code == 403


@pytest.mark.requirement("C-5-max-body", "H-limit-body")
@pytest.mark.parametrize("path", ["/v1/tool-calls", "/v1/samples"])
async def test_a_body_of_1_mib_passes_and_one_byte_more_does_not(client: AsyncClient, path: str) -> None:
    shell = b'{"name": "echo", "arguments": {"text": "%s"}}'
    whole = shell % (b"x" * (DEFAULT_MAX_BODY - len(shell) + 2))
    assert len(whole) == DEFAULT_MAX_BODY
    headers = {**ALICE, "Content-Type": "application/json"}
    assert (await client.post(path, headers=headers, content=whole)).status_code in {200, 201}
    over = await client.post(path, headers=headers, content=whole + b" ")
    assert (over.status_code, over.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.requirement("C-5-max-body")
@pytest.mark.parametrize("path", ["/v1/tool-calls", "/v1/samples"])
async def test_a_body_that_says_too_much_is_refused_before_a_byte_is_read(host: Host, path: str) -> None:
    headers = [LOCAL, KEY, (b"content-length", b"%d" % (DEFAULT_MAX_BODY + 1))]
    answer = await Conversation("POST", path, headers=headers, body=[b"{}"]).held_with(create_app(host))
    assert (answer.status, answer.taken) == (413, 0)


@pytest.mark.requirement("C-5-max-body")
@pytest.mark.parametrize("path", ["/v1/tool-calls", "/v1/samples"])
async def test_a_body_in_chunks_is_cut_off_at_the_limit(host: Host, path: str) -> None:
    chunk = b" " * (256 * 1024)
    answer = await Conversation("POST", path, headers=[LOCAL, KEY], body=[chunk] * 40).held_with(create_app(host))
    assert (answer.status, answer.taken) == (413, 5)


@pytest.mark.parametrize("length", [b"many", b"-1", b"1e3", b"\xb2", b""])
async def test_a_length_that_is_no_number_is_refused(host: Host, length: bytes) -> None:
    answer = await asked(host, [LOCAL, KEY, (b"content-length", length)])
    assert (answer.status, code(answer)) == (400, "invalid_request")


async def test_a_length_of_a_thousand_digits_is_refused_at_once(host: Host) -> None:
    assert (await asked(host, [LOCAL, KEY, (b"content-length", b"9" * 1000)])).status == 413


@pytest.mark.requirement("C-5-max-body-files")
async def test_an_uploaded_file_may_have_50_mib(host: Host) -> None:
    async def upload(size: int) -> Conversation:
        headers = [LOCAL, KEY, (b"content-length", b"%d" % size)]
        conversation = Conversation("POST", "/v1/samples/files", headers=headers, body=[b"x" * size])
        return await conversation.held_with(create_app(host))

    assert (await upload(MAX_FILE_BODY)).body == b"%d" % MAX_FILE_BODY
    assert (await upload(MAX_FILE_BODY + 1)).status == 413


@pytest.mark.requirement("C-5-max-body")
async def test_the_operator_sets_how_large_a_body_may_be(sample_package: None) -> None:
    async with open_host(settings(http={"max_body": "64"}), environ={}) as host, client_of(create_app(host)) as client:
        assert (await client.post("/v1/samples", headers=ALICE, content=b"x" * 64)).text == "64"
        assert (await client.post("/v1/samples", headers=ALICE, content=b"x" * 65)).status_code == 413


@pytest.mark.requirement("C-5-loopback-only")
async def test_without_auth_whoever_comes_through_a_trusted_proxy_is_the_peer(sample_package: None) -> None:
    given = settings(auth=None, http={"trusted_proxies": ["127.0.0.1"]})
    async with open_host(given, environ={}) as host, client_of(create_app(host)) as client:
        for forwarded, status in [("192.0.2.9", 403), ("192.0.2.9, 127.0.0.1", 403), ("127.0.0.1", 200)]:
            answer = await client.get("/v1/tools", headers={"X-Forwarded-For": forwarded})
            assert answer.status_code == status, forwarded
