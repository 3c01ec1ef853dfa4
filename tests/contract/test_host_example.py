"""The host of CONTRACT.md section 12, to the letter, beside the two models that it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.host.conftest import Package

HEAD = """\
from fastapi import FastAPI
from pydantic import BaseModel
from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.http import create_app

class Ask(BaseModel):
    question: str

class Answer(BaseModel):
    status: str
    output: str
"""
HOST = """
host = open_host("providers.yaml")                   # does nothing yet; may be entered again; a settings object does as well
app = FastAPI(lifespan=host.lifespan)                # or `async with host:` wherever the application opens its own things
app.mount("/tools", create_app(host))

@app.post("/ask")
async def ask(body: Ask) -> Answer:
    me = Principal(subject="alice", tenant="t1", scopes=frozenset({"tools:call"}))
    tools = host.executor_for(me, agent="researcher", session=None)                             # a ToolExecutor
    result = await tools.execute(ToolCall(id="c1", name="web.web_search", arguments={"query": "otters"}), CallContext(principal=me))
"""  # noqa: E501  the lines are the contract's
TAIL = "    return Answer(status=result.status, output=result.output)\n"
FILE = """\
providers: {web_search: {enabled: true, backend: searxng, url: http://searxng, max_results: 5}}
toolsets: {web: {prefix: web, from: provider:web_search, scope: shared}}
agents: {researcher: {toolsets: [web]}}
"""

WEB_SEARCH = """
    from pydantic import BaseModel
    from toolplug import FunctionProvider, tool

    class WebSearch(FunctionProvider):
        class Config(BaseModel):
            backend: str
            url: str
            max_results: int

        @tool(read_only=True)
        async def web_search(self, query: str) -> dict[str, object]:
            return {"query": query, **self.config.model_dump()}
"""


@pytest.fixture
def answered(
    package: Package, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, str]]:
    """What `POST /ask` answers where the host is this text."""
    package("toolplug-web-search", {"web_search": "web_mod:WebSearch"}, web_mod=WEB_SEARCH)
    monkeypatch.chdir(config(FILE).parent)

    def ask(text: str) -> dict[str, str]:
        names: dict[str, object] = {"__name__": "documented_host"}
        exec(compile(HEAD + text + TAIL, "documented_host.py", "exec"), names)
        app = names["app"]
        assert isinstance(app, FastAPI)
        with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
            listed = client.get("/tools/v1/tools").json()["tools"]
            assert [entry["function"]["name"] for entry in listed] == ["web_search"]
            return client.post("/ask", json={"question": "what are otters?"}).json()

    return ask


@pytest.mark.requirement("C-12-example-host", "C-12-host", "FR-010", "C-5-catalog-agent")
def test_the_documented_host_runs_as_it_stands(answered: Callable[[str], dict[str, str]]) -> None:
    assert answered(HOST) == {
        "status": "success",
        "output": '{"query":"otters","backend":"searxng","url":"http://searxng","max_results":5}',
    }


@pytest.mark.requirement("C-12-example-host", "C-5-agent-unknown")
def test_the_documented_host_with_an_agent_that_nobody_configured_finds_no_tool(
    answered: Callable[[str], dict[str, str]],
) -> None:
    text = HOST.replace("researcher", "nobody")
    assert answered(text) == {"status": "unknown_tool", "output": "Toolset not found for web.web_search"}
