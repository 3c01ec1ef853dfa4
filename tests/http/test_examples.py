"""The examples of a mounted host run as they stand, beside their catch-all route, and more than once."""

from __future__ import annotations

import runpy

import pytest
from starlette.testclient import TestClient
from tests.requirement_table import ROOT


@pytest.mark.requirement("I2-6-fastapi-three-lines", "I2-6-catch-all", "I2-6-start-twice", "I2-10-examples-run")
@pytest.mark.parametrize("name", ["fastapi_host", "starlette_host"])
def test_the_example_serves_tools_under_a_prefix_each_time_it_starts(name: str) -> None:
    app = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["app"]
    for _ in range(2):
        with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
            listed = client.get("/tools/v1/tools").json()["tools"]
            assert [tool["function"]["name"] for tool in listed] == ["hello"]
            called = client.post("/tools/v1/tool-calls", json={"name": "hello", "arguments": {"name": "otter"}})
            assert called.json()["output"] == "Hello, otter!"
            assert client.get("/tools/v1/hello").json() == {"greeting": "Hello, default!"}
            assert "nothing at" in client.get("/v1/tools").text
            assert client.get("/tools/nowhere").json()["error"]["code"] == "route_not_found"


@pytest.mark.requirement("C-12-host", "I2-10-examples-run")
def test_the_example_calls_tools_in_process() -> None:
    app = runpy.run_path(str(ROOT / "examples" / "fastapi_host.py"))["app"]
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1)) as client:
        assert client.post("/greet", json={"name": "you"}).json() == {"status": "success", "output": "Hello, you!"}
