"""The package works from wheels in an environment of its own: by command, over HTTP, and for the `openai` client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from tests.environments import install_wheels

pytestmark = [pytest.mark.judge, pytest.mark.needs("searx-run")]

PACKAGE = Path(__file__).parent.parent
OTTERS = "https://otters.example/"


@pytest.mark.requirement("I2-8-web-search-searx", "I2-8-web-search-responses")
def test_the_wheels_install_and_search_with_a_real_searx(web: Any, searx: str, tmp_path: Path) -> None:
    web.index([{"url": OTTERS, "title": "All about otters", "text": "Otters are mammals."}])
    scripts, _ = install_wheels(tmp_path, "server,responses", "ddgs", PACKAGE)
    config = {
        "providers": {"web_search": {"enabled": True, "url": searx}},
        "responses": {"backend": {"base_url": f"{web.url}/v1", "api_key": "none", "model": "m"}},
        "store": "memory://",
    }
    (tmp_path / "providers.yaml").write_text(json.dumps(config))
    command = [str(scripts / "toolplug"), "call", "web_search", "query=otters"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    results = [{"title": "All about otters", "url": OTTERS, "snippet": "Otters are mammals."}]
    assert json.loads(done.stdout) == {"results": results}
    command = [str(scripts / "toolplug"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(found[1] for line in process.stderr if (found := re.search(r"listening on (http://\S+)", line)))
            body = {"name": "web_search", "arguments": {"query": "otters"}}
            called = httpx2.post(f"{url}/v1/tool-calls", json=body, timeout=30).json()
            function = {"name": "web_search", "arguments": '{"query": "otters"}'}
            call = {"index": 0, "id": "c1", "type": "function", "function": function}
            web.model += [{"tool_calls": [call]}, {"content": f"They are mammals: {OTTERS}"}]
            with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
                answer = ai.responses.create(input="?", tools=[{"type": "web_search"}])
        finally:
            process.terminate()
            process.stderr.read()
    assert (called["status"], called["structured"]["results"]) == ("success", results)
    search, message = answer.output
    assert (search.type, message.type) == ("web_search_call", "message")
    assert [(note.type, note.url) for note in message.content[0].annotations] == [("url_citation", OTTERS)]


def test_a_search_of_ddgs_reaches_the_library(tmp_path: Path) -> None:
    """Nothing answers there; what the library says of that is the reason."""
    config = {"providers": {"web_search": {"enabled": True, "backend": "ddgs", "timeout_s": 5}}, "store": "memory://"}
    (tmp_path / "providers.yaml").write_text(json.dumps(config))
    environ = {"DDGS_PROXY": "http://127.0.0.1:9"}
    command = [str(Path(sys.executable).with_name("toolplug")), "call", "web_search", "query=otters"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert 'tool "web_search" is unavailable: ddgs ' in done.stdout
