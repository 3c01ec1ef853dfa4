"""A session that another process of the store has created, in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.conftest import ALICE, client_of, sample_package, settings
from tests.http.session_plugin import new_plugin

from toolplug import Principal, open_host
from toolplug.errors import InvalidSessionCode, SessionGone, SessionNotFound
from toolplug.http import create_app

__all__ = ["sample_package"]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-12-load-session")]

ME = Principal("ann", "t1", frozenset({"tools:call"}))


async def test_a_session_of_another_process_is_loaded_before_its_executor(sample_package: None, tmp_path: Path) -> None:
    whole = settings(store=f"sqlite:///{tmp_path}/state.db?shared=true")
    async with (
        open_host(whole, environ={}) as one,
        open_host(whole, environ={}) as two,
        client_of(create_app(one)) as client,
    ):
        plugin = await new_plugin(client)
        with pytest.raises(SessionNotFound):
            two.executor_for(ME, session=plugin.code)
        await two.load_session(plugin.code)
        await two.load_session(plugin.code)
        assert list(two.executor_for(ME, session=plugin.code).catalog)
        with pytest.raises(SessionNotFound):
            two.executor_for(Principal("eve", "t2"), session=plugin.code)
        assert (await client.delete(plugin.place, headers=ALICE)).status_code == 204
        with pytest.raises(SessionGone):
            await two.load_session(plugin.code)
        with pytest.raises(SessionNotFound):
            await two.load_session("AAAAAAAA")
        with pytest.raises(InvalidSessionCode):
            await two.load_session("no code")
