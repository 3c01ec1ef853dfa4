"""A served host: `POST /v1/tool-calls`, the `openai` client over `/v1/responses`, and `toolplug doctor`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Router

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.process

OTTERS, ELBE = "https://otters.example/", "https://en.rivers.example/elbe?page=2"
TOOLPLUG = Path(sys.executable).with_name("toolplug")

Listening = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def url(web: Any, tmp_path: Path, listening: Listening) -> Iterator[str]:
    """A served host whose model is the web's."""
    config = {
        "providers": {"web_search": {"enabled": True, "url": web.url}},
        "egress": {"allow": ["loopback"]},
        "responses": {"backend": {"base_url": f"{web.url}/v1", "api_key": "none", "model": "m"}},
        "store": "memory://",
    }
    (tmp_path / "providers.yaml").write_text(json.dumps(config))
    host = open_host(tmp_path / "providers.yaml", environ={})
    with listening(Router(default=create_app(host), lifespan=host.lifespan), lifespan=True) as found:
        yield found


def called(name: str, **arguments: object) -> dict[str, object]:
    """What the model says to call a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call_{name}", "type": "function", "function": function}]}


@pytest.mark.requirement("I2-8-web-search-responses", "C-4-shipped-web-search")
@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
)
def test_the_openai_client_sees_web_search_calls_and_the_citations_of_the_answer(web: Any, url: str, kind: Any) -> None:
    web.pages["zoo"] = lambda _: HTMLResponse("<title>The zoo</title><p>Otters are fed at noon.")
    text = f"Otters are mammals ({OTTERS}) and are fed at noon, says {web.url}/zoo."
    web.model += [called("web_search", query="otters"), called("open_page", url=f"{web.url}/zoo"), {"content": text}]
    tool: Any = {"type": kind, "search_context_size": "low", "user_location": {"type": "approximate", "country": "DE"}}
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
        answer = ai.responses.create(input="?", tools=[tool], include=["web_search_call.action.sources"])
    search, page, message = answer.output
    assert search.type == page.type == "web_search_call"
    assert search.status == page.status == "completed"
    assert search.action.type == "search"
    assert (search.action.query, [source.url for source in search.action.sources or ()][:2]) == (
        "otters",
        [OTTERS, ELBE],
    )
    assert (page.action.type, page.action.url) == ("open_page", f"{web.url}/zoo")
    assert message.type == "message"
    [part] = message.content
    assert part.type == "output_text"
    notes = [note.model_dump() for note in part.annotations]
    assert [(note["type"], note["url"], text[note["start_index"] : note["end_index"]]) for note in notes] == [
        ("url_citation", OTTERS, OTTERS),
        ("url_citation", f"{web.url}/zoo", f"{web.url}/zoo"),
    ]
    assert [note["title"] for note in notes] == ["All about otters", "The zoo"]


@pytest.mark.requirement("I2-8-web-search-responses")
def test_a_stub_without_access_to_the_web_is_told_that_nothing_is_cached(web: Any, url: str) -> None:
    web.model += [called("web_search", query="otters"), {"content": "Nothing."}]
    tool: Any = {"type": "web_search", "external_web_access": False}
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
        answer = ai.responses.create(input="?", tools=[tool])
    assert answer.output_text == "Nothing."
    assert web.bodies[-1]["messages"][-1]["content"] == (
        '{"results":[],"note":"external_web_access is false, and no earlier search for this is cached"}'
    )
    assert web.requests == []


def test_a_call_over_http_takes_the_options_of_the_stub(web: Any, url: str) -> None:
    body = {
        "name": "web_search",
        "arguments": {"query": "otters"},
        "options": {"filters": {"allowed_domains": ["otters.example"]}},
    }
    answer = httpx2.post(f"{url}/v1/tool-calls", json=body).json()
    assert (answer["status"], [each["url"] for each in answer["structured"]["results"]]) == ("success", [OTTERS])


def test_an_address_in_place_of_a_domain_is_refused_with_its_place(url: str) -> None:
    options = {"filters": {"allowed_domains": ["https://example.org/"]}}
    body = {"name": "web_search", "arguments": {"query": "otters"}, "options": options}
    answer = httpx2.post(f"{url}/v1/tool-calls", json=body)
    assert "/filters/allowed_domains/0: does not match" in answer.text, answer.text


@pytest.mark.requirement("I2-8-web-search-doctor")
def test_the_doctor_tells_of_a_backend_that_is_down_or_refuses_the_key(web: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    web.search = lambda _: JSONResponse({"error": "no"}, 401)
    config = {
        "providers": {
            "down": {"type": "web_search", "enabled": True, "url": f"http://127.0.0.1:{port}"},
            "brave": {"type": "web_search", "enabled": True, "backend": "brave", "url": web.url, "api_key": "s3cret"},
        },
        "store": "memory://",
    }
    (tmp_path / "providers.yaml").write_text(json.dumps(config))
    command = [str(TOOLPLUG), "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    told = [each for each in json.loads(done.stdout)["warnings"] if each["code"] == "provider_warning"]
    assert [(each["path"], each["message"]) for each in told] == [
        (
            "providers.down",
            f"SearXNG cannot be reached: cannot connect to 127.0.0.1:{port}; until then searches fail",
        ),
        (
            "providers.brave",
            "Brave Search refuses access (HTTP 401); check api_key; until then searches fail",
        ),
    ]
