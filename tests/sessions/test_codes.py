"""Codes address sessions, tokens open them."""

from __future__ import annotations

import re

import pytest
from tests.sessions.fixtures import T1, T2

from toolplug.catalog.call import Principal, check_code
from toolplug.errors import InvalidSessionCode, SessionGone, SessionNotFound
from toolplug.parts.sessions.record import (
    abbreviate_code,
    code_of_token,
    is_token_of,
    new_code,
    new_token,
    token_digest,
)
from toolplug.parts.sessions.service import Sessions
from toolplug.stores.store import Store

MALFORMED = [
    "",
    "ABC12345",
    "abcdefgh",
    "ABCDEFG",
    "ABCDEFGHI",
    "ABCDEFG1",
    "ABCDEFG0",
    "ABCDEFG ",
    "ABCDEFGH\n",
    "ÄBCDEFGH",
]


@pytest.mark.requirement("C-6-code")
def test_codes_are_eight_characters_of_the_alphabet_and_differ() -> None:
    codes = {new_code() for _ in range(1_000)}
    assert len(codes) == 1_000
    assert all(re.fullmatch("[A-Z2-7]{8}", code) for code in codes)
    assert {character for code in codes for character in code} == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


@pytest.mark.requirement("C-6-code-malformed")
@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(InvalidSessionCode) as refusal:
        check_code(text)
    assert refusal.value.code == text


def test_a_token_names_its_session_and_only_its_digest_tells_whether_it_is_right() -> None:
    token = new_token("ABCDEFGH")
    assert re.fullmatch("tps_ABCDEFGH_[A-Za-z0-9_-]{43}", token)
    assert code_of_token(token) == "ABCDEFGH"
    digest = token_digest(token)
    assert token not in digest
    assert is_token_of(digest, token)
    assert not is_token_of(digest, new_token("ABCDEFGH"))
    assert not is_token_of(digest, "")


@pytest.mark.parametrize("text", ["", "tps_", "tps_ABCDEFGH_short", "tp_live_x", "tps_abcdefgh_" + "x" * 43])
def test_a_malformed_token_names_no_session(text: str) -> None:
    assert code_of_token(text) is None


def test_logs_show_a_session_without_its_code() -> None:
    assert re.fullmatch("session:[0-9a-f]{12}", abbreviate_code("ABCDEFGH"))
    assert abbreviate_code("ABCDEFGH") != abbreviate_code("ABCDEFGI")


@pytest.mark.anyio
@pytest.mark.requirement("C-6-code-unknown", "C-6-code-malformed", "DYN-US-isolated")
async def test_a_session_is_found_by_its_own_tenant_and_token_only(sessions: Sessions) -> None:
    mine, token = await sessions.create(T1, plugin_type="codap")
    other, other_token = await sessions.create(T2)
    assert await sessions.find(mine.code, "t1") is mine
    assert await sessions.with_token(mine.code, token) is mine
    assert sessions.known_session(mine.code, "t1") is mine
    assert await sessions.with_token(mine.code, other_token) is None
    assert (mine.tenant, mine.state.plugin_type, mine.revision, mine.state.registered) == ("t1", "codap", 0, False)
    for code, tenant in ((mine.code, "t2"), (other.code, "t1"), ("A" * 8, "t1")):
        with pytest.raises(SessionNotFound):
            await sessions.find(code, tenant)
        with pytest.raises(SessionNotFound):
            sessions.known_session(code, tenant)
    with pytest.raises(SessionNotFound):
        await sessions.with_token("A" * 8, token)
    with pytest.raises(InvalidSessionCode):
        await sessions.find("ABC12345", "t1")


@pytest.mark.anyio
@pytest.mark.requirement("C-6-token-once")
async def test_the_store_never_holds_a_token(sessions: Sessions, store: Store) -> None:
    session, token = await sessions.create(T1)
    record = await store.read(f"session/{session.code}")
    assert record is not None
    assert token.encode() not in record.value
    assert token.split("_", 2)[2].encode() not in record.value


@pytest.mark.anyio
@pytest.mark.requirement("C-6-code-ended", "C-6-delete")
async def test_only_those_who_could_use_it_hear_that_a_session_has_ended(sessions: Sessions) -> None:
    session, token = await sessions.create(T1)
    await sessions.end(session, T1)
    await sessions.end(session, T1)
    for opening in (sessions.find(session.code, "t1"), sessions.with_token(session.code, token)):
        with pytest.raises(SessionGone) as gone:
            await opening
        assert gone.value.state == "session_ended"
    assert await sessions.with_token(session.code, "tps_" + "x" * 52) is None
    with pytest.raises(SessionNotFound):
        await sessions.find(session.code, "t2")
    assert sessions.live == ()
    assert sessions.counters.ended == {"session_ended": 1}


@pytest.mark.anyio
async def test_a_session_belongs_to_the_tenant_of_who_creates_it(sessions: Sessions) -> None:
    session, _ = await sessions.create(Principal(tenant="t9"))
    assert session.tenant == "t9"
