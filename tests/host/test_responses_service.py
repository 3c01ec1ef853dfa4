"""Which model's server a host asks, and when it begins to."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from toolplug import FunctionRegistry
from toolplug.parts.responses.running import ResponsesService
from toolplug.parts.responses.settings import BackendSettings, ResponsesSettings
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


@pytest.mark.requirement("I6-1-backend-errors")
@pytest.mark.parametrize("path", ["/chat/completions", "/chat/completions/", "/completions", "/responses?x=1"])
def test_a_base_url_with_the_path_of_a_request_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="should be the URL up to /v1; remove /"):
        BackendSettings(base_url=f"https://models.example/v1{path}")


@pytest.mark.requirement("I6-1-backend-errors")
@pytest.mark.parametrize(
    "url", ["https://models.example/v1", "https://completions.example/models", "http://127.0.0.1:1"]
)
def test_another_base_url_is_valid(url: str) -> None:
    assert BackendSettings(base_url=url).base_url == url


@pytest.mark.requirement("I6-1-backend-errors")
@pytest.mark.parametrize("key", ["$KEY", "${OPENAI_API_KEY}", "{KEY}", "%KEY%"])
def test_a_key_that_is_the_name_of_a_variable_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="for the variable NAME"):
        BackendSettings(base_url="https://models.example/v1", api_key=SecretStr(key))
    assert BackendSettings(base_url="https://models.example/v1", api_key=SecretStr(f"sk-{key}")).api_key is not None


@pytest.mark.requirement("I6-2-plain")
async def test_the_client_is_loaded_at_the_start_and_one_that_cannot_be_fails_the_requests_alone() -> None:
    odd = NOWHERE.model_copy(update={"backend": NOWHERE.backend.model_copy(update={"base_url": "http://[x"})})
    async with MemoryStore() as store:
        for settings in (NOWHERE, odd, None):
            responses = ResponsesService(store, settings, lambda key: None)
            await responses.load()
            if settings is NOWHERE:
                assert await responses.backend() is await responses.backend()
            await responses.aclose()
