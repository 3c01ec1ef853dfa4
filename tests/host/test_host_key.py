"""The host's key: what it seals only it opens, processes of one store have the same, and a rotation loses nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from toolplug import FunctionProvider, Principal, ProviderContext, Sealer, open_host
from toolplug.errors import ConfigError, HostKeyError, Unsealable
from toolplug.host.keys import FILE, HostKey, rotate_keys
from toolplug.stores.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I38-host-key")]

ONE, TWO = "1" * 43, "2" * 43  # constants: each worker collects the same tests
OPERATOR = Principal("root", scopes=frozenset({"admin", "operator"}))


class Sealing(FunctionProvider):
    """Keeps what seals for it."""

    sealer: Sealer

    async def start(self, site: ProviderContext) -> None:
        """Ask for it."""
        self.sealer = await site.sealer()


class Asking(FunctionProvider):
    """Has nothing sealed."""


async def sealer_of(settings: object, key: str = "first") -> Sealer:
    """Return the sealer of a provider of a host that has been closed again."""
    provider = Sealing()
    async with open_host(settings, providers={key: provider}):  # pyright: ignore[reportArgumentType]
        return provider.sealer


def stored(folder: Path, **more: object) -> dict[str, object]:
    return {"store": f"sqlite:///{folder}/state.db", "providers": {}, **more}


async def test_what_is_sealed_is_opened_after_a_restart_and_by_nobody_else(tmp_path: Path) -> None:
    first = await sealer_of(stored(tmp_path))
    sealed = first.seal(b"secret", b"for ada")
    assert b"secret" not in sealed
    assert len(sealed) == len(b"secret") + 33
    assert sealed != first.seal(b"secret", b"for ada")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    again = await sealer_of(stored(tmp_path))
    assert again.unseal(sealed, b"for ada") == b"secret"
    other = await sealer_of(stored(tmp_path), "second")
    places = range(len(sealed))
    changed = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in places]
    for opener, given, bound in (
        (again, sealed, b"for ben"),
        (other, sealed, b"for ada"),
        *((again, each, b"for ada") for each in (*changed, *(sealed[:at] for at in places))),
    ):
        with pytest.raises(Unsealable):
            opener.unseal(given, bound)


async def test_a_rotated_key_seals_and_the_former_one_still_opens(tmp_path: Path) -> None:
    provider = Sealing()
    async with open_host(stored(tmp_path), providers=[provider]) as host:
        before = provider.sealer.seal(b"before")
        assert rotate_keys(tmp_path / FILE) == 2
        beside = await sealer_of(
            {"store": "memory://", "providers": {}, "key": {"file": str(tmp_path / FILE)}}, "sealing"
        )
        after = beside.seal(b"after")
        assert provider.sealer.unseal(after) == b"after", "keys are read again for one that is not known"
        assert provider.sealer.unseal(before) == b"before"
        await host.reload(by=OPERATOR)
        assert provider.sealer.seal(b"")[:5] == after[:5]
        former = (tmp_path / FILE).read_text("utf-8").split()[1]
        with pytest.raises(HostKeyError, match="key is not that of this store"):
            await HostKey(lambda: SecretStr(former), host.store, tmp_path, None, given=False).open()
    for _ in range(10):
        keys = rotate_keys(tmp_path / FILE)
    assert keys == 8


async def test_a_process_with_another_key_than_its_store_does_not_start(tmp_path: Path) -> None:
    await sealer_of(stored(tmp_path, key=ONE))
    with pytest.raises(HostKeyError, match="key is not that of this store"):
        async with open_host(stored(tmp_path, key=TWO)):
            pass
    async with open_host(stored(tmp_path, key=[TWO, ONE])):
        pass
    with pytest.raises(HostKeyError, match="key is not that of this store"):
        async with open_host(stored(tmp_path, key=[ONE])):
            pass


async def test_of_two_processes_that_start_at_once_with_different_keys_one_is_refused(tmp_path: Path) -> None:
    class Racing(MemoryStore):
        """Another process is always a step ahead."""

        async def commit(self, key: str, *given: Any, **more: Any) -> Any:
            if (racer := other.pop()) is not None:
                await racer.open()
            return await super().commit(key, *given, **more)

    async with Racing() as store:
        keys = [HostKey(lambda key=key: SecretStr(key), store, tmp_path, tmp_path, given=True) for key in (ONE, TWO)]
        other: list[HostKey | None] = [None, None, None, keys[1]]
        with pytest.raises(HostKeyError, match="key is not that of this store"):
            await keys[0].open()
        await keys[1].open()
        same = HostKey(lambda: SecretStr(TWO), store, tmp_path, tmp_path, given=True)
        await same.open()


@pytest.mark.parametrize("store", ["redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/x"])
async def test_a_store_on_the_network_without_a_key_is_an_error_of_the_file_where_callers_act_as_themselves(
    store: str,
) -> None:
    acting = {"enabled": True, "user_auth": {"from": "credential:x"}}
    with pytest.raises(ConfigError, match=r"'first' has user_auth, and .* the same key") as raised:
        async with open_host({"store": store, "providers": {"first": acting}}, providers={"first": Asking()}):
            pass
    (problem,) = raised.value.problems
    assert (problem.path, problem.code, "key rotate --show" in problem.hint) == ("store", "no_key", True)


@pytest.mark.parametrize("key", ["short", ["x" * 43, ""], [], {"fil": "x"}, 7, [ONE] * 9])
async def test_what_is_no_key_is_an_error_of_the_file_and_shows_no_value(key: object) -> None:
    with pytest.raises(ConfigError) as raised:
        async with open_host({"store": "memory://", "key": key}):
            pass
    assert all(problem.path.startswith("key") for problem in raised.value.problems)
    assert ONE not in str(raised.value)


async def test_processes_on_a_network_are_given_a_key_and_make_none(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        key = HostKey(lambda: None, store, tmp_path, tmp_path, given=True)
        with pytest.raises(HostKeyError, match=r"TOOLPLUG_KEY"):
            await key.sealer("test")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "short", f"{ONE}\nshort", f"{ONE}\n" * 9])
async def test_a_file_that_holds_no_keys_is_neither_used_nor_overwritten(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.key"
    file.write_text(text, "utf-8")
    file.chmod(0o600)
    with pytest.raises(HostKeyError, match=r"mine\.key"):
        rotate_keys(file)
    assert file.read_text("utf-8") == text


async def test_a_file_that_others_can_read_is_no_key(tmp_path: Path) -> None:
    if not hasattr(os, "geteuid"):
        pytest.skip("modes say nothing there")
    file = tmp_path / "mine.key"
    file.write_text(ONE, "utf-8")
    file.chmod(0o644)
    with pytest.raises(HostKeyError, match=r"mine\.key"):
        rotate_keys(file)


async def test_no_key_is_shown_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_host(stored(tmp_path, key=[ONE, TWO])) as host:
        assert ONE not in repr(host.settings)
        shown = str(host.configured_values(OPERATOR))
        assert ONE not in shown
        assert "key" in shown
    assert ONE not in caplog.text


async def test_a_host_whose_callers_act_as_themselves_opens_its_key_at_the_start(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        key = HostKey(lambda: None, store, tmp_path, tmp_path, given=True)
        await key.begin(needed=False)
        with pytest.raises(HostKeyError, match=r"key: \"\$\{TOOLPLUG_KEY\}\""):
            await key.begin(needed=True)
    acting = {"enabled": True, "user_auth": {"from": "credential:x"}}
    with_key = stored(tmp_path, providers={"first": acting}, key=ONE)
    async with open_host(with_key, providers={"first": Asking()}):
        pass
    with pytest.raises(HostKeyError, match="key is not that of this store"):
        async with open_host({**with_key, "key": TWO}, providers={"first": Asking()}):
            pass
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    async with open_host(stored(quiet), providers={"first": Asking()}):
        assert not (quiet / FILE).exists()
    async with open_host(stored(quiet, providers={"first": acting}), providers={"first": Asking()}):
        assert (quiet / FILE).exists()
