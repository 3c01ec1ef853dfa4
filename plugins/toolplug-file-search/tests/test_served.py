"""A real server and real clients: many documents, a restart, and the `openai` client from end to end."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx2
import openai
import pytest

pytestmark = pytest.mark.judge

Start = Callable[[], AbstractContextManager[tuple[str, subprocess.Popen[str]]]]

SUBJECTS = ("billing", "search", "upload", "login", "export", "mail", "invoice", "audit", "backup", "metrics")
PARTS = ("queue", "worker", "cache", "index", "gateway", "scheduler", "replica", "archive", "bucket", "proxy")
ACTIONS = (
    "restart the {part} before the nightly window closes",
    "ask the team on call before the {part} is scaled down",
    "check the dashboard of the {subject} {part} for rising latency",
    "read the last entries of the log, then drain the {part}",
    "compare the number of open connections with the limit of the {part}",
)


def runbooks(count: int) -> Iterator[tuple[str, str, str, str]]:
    """Names and texts of Markdown documents, each with a question and the passage that only it has."""
    chance = random.Random(7)
    for number in range(count):
        subject, part = SUBJECTS[number % 10], PARTS[number // 10 % 10]
        steps = [chance.choice(ACTIONS).format(subject=subject, part=part) for _ in range(12)]
        code, minutes = f"{chance.choice('ABCDEFG')}{number:03d}", chance.randint(3, 90)
        answer = f"Error {code} means that the {subject} {part} has been silent for {minutes} minutes."
        text = (
            f"# Runbook {number}: the {subject} {part}\n\nThis page is for the person on call.\n\n"
            f"## Daily work\n\n" + "\n".join(f"{place}. First, {step}." for place, step in enumerate(steps, 1)) + "\n\n"
            f"## Errors\n\n{answer} Wake the owner.\n\n## History\n\n{chance.choice(steps).capitalize()}.\n"
        )
        yield f"runbook-{number}.md", text, f"what does error {code} mean", answer


def call(http: httpx2.Client, tool: str, **arguments: object) -> dict[str, object]:
    answer = http.post("/v1/tool-calls", json={"name": tool, "arguments": arguments}).json()
    assert answer["status"] == "success", answer
    return answer


def read(http: httpx2.Client, store: str) -> dict[str, Any]:
    """The vector store once all of its files were read."""
    while (shown := http.get(f"/v1/vector_stores/{store}").json())["status"] == "in_progress":
        time.sleep(0.01)
    return shown


def client(url: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, headers={"Authorization": "Bearer key-one"}, timeout=30)


@pytest.mark.requirement("I2-8-file-search")
def test_two_hundred_documents_are_found_after_a_restart_each_by_its_own_question(start: Start) -> None:
    documents = list(runbooks(210))
    with start() as (url, _), client(url) as http:
        store = http.post("/v1/vector_stores", json={"name": "runbooks"}).json()["id"]

        def add(document: tuple[str, str, str, str]) -> str:
            name, text, *_ = document
            form = {"files": {"file": (name, text)}, "data": {"purpose": "assistants"}}
            file = http.post("/v1/files", **form).json()["id"]
            return http.post(f"/v1/vector_stores/{store}/files", json={"file_id": file}).json()["id"]

        with ThreadPoolExecutor(8) as threads:
            assert len(set(threads.map(add, documents))) == 210
    # what was not read when the server ended is read by the next one
    with start() as (url, _), client(url) as http:
        assert read(http, store)["file_counts"]["completed"] == 210
        for name, text, question, answer in documents[::7]:
            [best] = call(http, "file_search", query=question, max_results=1)["structured"]["results"]
            assert (best["file"], best["headings"].split(" > ")[-1]) == (name, "Errors")
            assert answer in best["passage"]
            begin, end = best["characters"]
            assert text[begin:end] == best["passage"]
            assert answer in "\n".join(text.splitlines()[slice(best["lines"][0] - 1, best["lines"][1])])
        # The provider's process sends its metrics a moment after a call.
        while "file_search_search_seconds_count 30.0" not in (metrics := http.get("/metrics").text):
            time.sleep(0.01)
        assert 'file_search_documents{source="uploaded"} 210.0' in metrics


def test_what_was_acknowledged_before_a_kill_is_found_after_it(start: Start) -> None:
    completed: list[str] = []
    with start() as (url, process), client(url) as http:
        store = http.post("/v1/vector_stores", json={}).json()["id"]

        def add(number: int) -> None:
            form = {"files": {"file": (f"{number}.txt", f"river word{number}")}, "data": {"purpose": "assistants"}}
            try:
                file = http.post("/v1/files", **form).json()["id"]
                http.post(f"/v1/vector_stores/{store}/files", json={"file_id": file}).raise_for_status()
            except httpx2.TransportError:
                return
            completed.append(f"{number}.txt")
            if len(completed) >= 30:
                process.send_signal(signal.SIGKILL)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(add, range(200)))
    assert 30 <= len(completed) < 200
    with start() as (url, _), client(url) as http:
        counts = read(http, store)["file_counts"]
        files = call(http, "list_files", limit=1000)["structured"]
        assert set(completed) <= {file["file"] for file in files["files"]}
        assert counts["completed"] == files["total"]
        for file in files["files"]:
            word = file["file"].removesuffix(".txt")
            [best] = call(http, "file_search", query=f"word{word}", max_results=1)["structured"]["results"]
            assert best["file"] == file["file"]


@pytest.mark.requirement("I2-8-vector-stores")
def test_the_openai_client_uploads_lists_and_deletes(start: Start) -> None:
    with start() as (url, _), openai.OpenAI(api_key="key-one", base_url=f"{url}/v1", max_retries=0) as ai:
        file = ai.files.create(file=("rivers.md", b"# Rivers\n\nThe Elbe is 1094 km long.\n"), purpose="assistants")
        assert (file.filename, file.bytes, file.purpose) == ("rivers.md", 36, "assistants")
        store = ai.vector_stores.create(name="geography", metadata={"team": "maps"})
        member = ai.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id, attributes={"year": 2026})
        assert (member.status, member.attributes, member.last_error) == ("completed", {"year": 2026}, None)
        assert ai.vector_stores.retrieve(store.id).file_counts.completed == 1
        more = ai.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("b.txt", b"The Oder is shorter."))
        assert [item.id for item in ai.vector_stores.files.list(store.id, limit=1)] == [more.id, file.id]
        assert ai.vector_stores.files.retrieve(file.id, vector_store_id=store.id) == member
        assert [item.id for item in ai.files.list(order="asc")] == [file.id, more.id]
        assert ai.files.content(file.id).read() == b"# Rivers\n\nThe Elbe is 1094 km long.\n"
        with client(url) as http:
            [best] = call(http, "file_search", query="how long is the Elbe", max_results=1)["structured"]["results"]
        assert (best["file"], best["file_id"]) == ("rivers.md", file.id)
        assert ai.vector_stores.files.delete(more.id, vector_store_id=store.id).deleted
        assert ai.files.delete(file.id).deleted
        assert ai.vector_stores.retrieve(store.id).file_counts.total == 0
        assert ai.vector_stores.delete(store.id).deleted
        assert ai.vector_stores.list().data == []


def test_the_openai_client_understands_what_is_refused(start: Start) -> None:
    with start() as (url, _), openai.OpenAI(api_key="key-one", base_url=f"{url}/v1", max_retries=0) as ai:
        with pytest.raises(openai.NotFoundError) as missing:
            ai.vector_stores.retrieve("vs_x")
        assert missing.value.code == "vector_store_not_found"
        with pytest.raises(openai.BadRequestError) as unreadable:
            ai.files.create(file=("a.png", b"\x89PNG\xff"), purpose="assistants")
        assert (unreadable.value.code, unreadable.value.param) == ("unsupported_file", "file")
        with pytest.raises(openai.BadRequestError) as unsupported:
            ai.vector_stores.create(extra_body={"name": 7})
        assert (unsupported.value.code, unsupported.value.param) == ("invalid_value", "name")
        damaged = ai.files.create(file=("a.pdf", b"%PDF-1.7 and no more"), purpose="assistants")
        store = ai.vector_stores.create()
        failed = ai.vector_stores.files.create_and_poll(damaged.id, vector_store_id=store.id)
        assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
        assert "'a.pdf' cannot be read as PDF" in failed.last_error.message
        assert ai.vector_stores.retrieve(store.id).file_counts.failed == 1
        with pytest.raises(openai.AuthenticationError):
            ai.with_options(api_key="wrong").vector_stores.list()
