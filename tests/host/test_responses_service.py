"""Which model's server a host asks, and when it begins to."""

from __future__ import annotations

import pytest

from toolplug import FunctionRegistry
from toolplug.host.file.settings import BackendSettings, ResponsesSettings
from toolplug.host.responses import ResponsesService
from toolplug.responses import ResponseRequest, ToolCaller
from toolplug.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio

NOWHERE = ResponsesSettings(backend=BackendSettings(base_url="http://127.0.0.1:1/v1", model="m", retries=0))


@pytest.mark.requirement("I6-2-plain")
async def test_a_host_without_a_models_server_makes_no_responses_until_it_is_given_one() -> None:
    async with MemoryStore() as store:
        desk = ResponsesService(store, None, lambda key: None)
        assert desk.service is None
        desk.configure(NOWHERE)
        assert desk.service is not None
        desk.configure(None)
        assert desk.service is None
        await desk.aclose()


@pytest.mark.process
@pytest.mark.requirement("I6-1-backend-errors")
async def test_another_server_is_asked_from_the_next_response_on() -> None:
    elsewhere = NOWHERE.model_copy(update={"backend": NOWHERE.backend.model_copy(update={"model": "other"})})
    async with MemoryStore() as store, FunctionRegistry({}) as registry:
        desk = ResponsesService(store, NOWHERE, lambda key: None)

        async def asker(conversation: str) -> ToolCaller:
            return ToolCaller(registry)

        async def model() -> object:
            service = desk.service
            assert service is not None
            response = {}
            async for event in service.events(ResponseRequest(input="Hi", stream=True), "t1", asker):
                response = event.get("response", response)
            assert isinstance(response, dict)
            return response["model"], response["status"]

        assert await model() == ("m", "failed")
        desk.configure(elsewhere)
        assert await model() == ("other", "failed")
        await desk.aclose()
