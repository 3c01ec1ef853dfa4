"""`toolplug chat`: a model answers, and the calls that it makes are seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from tests.cli.chatting import STUBBORN, scripted_model, terminal
from tests.cli.conftest import Run
from tests.cli.process import serving
from tests.responses.backend.script import Call, Gate, Held, Refused, Turn, calls, says
from tests.responses.backend.scripted import ScriptedBackend

pytestmark = pytest.mark.requirement("I16-2-chat")

ADD = Turn(text="Adding.", calls=(Call("add", '{"a": 1, "b": 2}'),))


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ScriptedBackend]:
    with scripted_model(tmp_path) as served:
        yield served


@pytest.mark.process
def test_the_answer_goes_to_stdout_and_the_calls_to_stderr(run: Run, model: ScriptedBackend) -> None:
    model.plays(ADD, says("The sum is 3."))
    done = run("chat", "add 1 and 2")
    assert (done.code, done.out) == (0, "Adding.\nThe sum is 3.\n")
    assert re.fullmatch(r'✓ add \{"a": 1, "b": 2\} \d+ ms\n  3\n', done.err)
    assert model.asked[0].body["stream"] is True


@pytest.mark.process
def test_a_message_is_read_from_stdin(run: Run, model: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    model.plays(says("hi"))
    monkeypatch.setattr("sys.stdin", StringIO("  hello\nthere\n"))
    assert run("chat").out == "hi\n"
    assert model.asked[0].messages[-1] == {"role": "user", "content": "hello\nthere"}
    monkeypatch.setattr("sys.stdin", StringIO("\n"))
    assert run("chat").code == 2


@pytest.mark.process
def test_json_prints_the_events_one_a_line(run: Run, model: ScriptedBackend) -> None:
    model.plays(says("hi"))
    done = run("chat", "hello", "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == ["hi"]


@pytest.mark.process
def test_what_cannot_be_answered_exits_1_with_the_reason(run: Run, model: ScriptedBackend, tmp_path: Path) -> None:
    model.plays(Refused(status=400), calls(Call("mail", '{"to": "nobody"}')))
    refused = run("chat", "hello")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err
    waiting = run("chat", "mail nobody")
    assert waiting.code == 1
    assert re.search(r'mail \{"to": "nobody"\} waits for approval \w+; a chat at a terminal asks for it\n', waiting.err)
    assert run("chat", " ").code == 2
    assert run("chat", "hi", "--session", "ABCDEFGH", "--json").codes == ["session_not_found"]


@pytest.mark.process
def test_without_a_model_it_says_which_lines_configure_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text("providers: {hello: {enabled: true}}\nstore: memory://\n")
    done = run("chat", "hello")
    assert done.code == 1
    assert "there is no model to ask; add these lines to providers.yaml:\n\nresponses:\n  backend:\n" in done.err
    assert run("chat", "hello", "--json").codes == ["no_backend"]


@pytest.mark.judge
def test_a_running_host_answers_one_message(run: Run, model: ScriptedBackend, tmp_path: Path) -> None:
    with serving(folder=tmp_path) as host:
        model.plays(ADD, says("3"))
        done = run("chat", "add", "--url", host.url)
        assert (done.code, done.out) == (0, "Adding.\n3\n")
        gone = run("chat", "add", "--url", host.url, "--session", "ABCDEFGH")
        assert (gone.code, gone.err.startswith("ABCDEFGH: no such session")) == (1, True)
        url = host.url
    away = run("chat", "add", "--url", url)
    assert (away.code, away.err.startswith("no host answers at http://127.0.0.1:")) == (1, True)
    assert run("chat", "add", "--url", "localhost").code == 2


@pytest.mark.judge
def test_a_running_host_that_refuses_the_key_is_reported(run: Run, tmp_path: Path) -> None:
    keys = [{"key": "valid-key-of-this-test", "subject": "ann", "scopes": ["tools:read"]}]
    with scripted_model(tmp_path, f"auth: {{api_keys: {json.dumps(keys)}}}"), serving(folder=tmp_path) as host:
        (tmp_path / "key").write_text("wrong")
        wrong = run("chat", "hello", "--url", host.url, "--key-file", "key")
        (tmp_path / "key").write_text(keys[0]["key"])
        weak = run("chat", "hello", "--url", host.url, "--key-file", "key")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("no valid credentials"), wrong.err
    assert (weak.code, weak.out) == (1, "")
    assert "tools:call" in weak.err, weak.err


@pytest.mark.judge
@pytest.mark.timeout(90)
def test_a_denied_call_is_answered_and_a_tool_that_ignores_ctrl_c_does_not_hold_the_prompt(
    model: ScriptedBackend, tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    file = tmp_path / "providers.yaml"
    file.write_text(
        file.read_text().replace("providers: {", "providers: {stubborn: {type: ./stubborn.py, enabled: true}, ")
    )
    model.plays(calls(Call("mail", '{"to": "ann"}')), says("Then not."), calls(Call("stubborn")), says("Short."))
    with terminal(tmp_path) as seen:
        seen.wait_for("> ")
        seen.type("mail ann\r")
        seen.wait_for("Approve mail")
        seen.type("n\r")
        assert "the call was not approved" in seen.wait_for("Then not")
        seen.wait_for("> ")
        seen.type("be stubborn\r")
        seen.wait_for("calling stubborn")
        seen.interrupt("cancelled; Ctrl-C again ends the chat")
        seen.wait_for("> ")
        seen.type("shorter\r")
        seen.wait_for("Short")
        seen.wait_for("> ")
        seen.type("\x04")
        assert seen.end() == 0
    assert (tmp_path / "ignored").exists()
    assert not (tmp_path / "sent").exists()


@pytest.mark.judge
@pytest.mark.timeout(90)
def test_at_a_terminal_it_asks_for_approval_continues_and_ctrl_c_cancels(
    model: ScriptedBackend, tmp_path: Path
) -> None:
    model.plays(calls(Call("mail", '{"to": "ann"}')), says("It is sent."))
    with terminal(tmp_path) as seen:
        seen.wait_for("> ")
        seen.type("mail ann\r")
        seen.wait_for(r'Approve mail \{"to": "ann"\}\? \[y/n, Enter: later\] ')
        seen.type("y\r")
        seen.wait_for("It is sent")
        assert (tmp_path / "sent").exists()
        gate = Gate()
        model.plays(Held(turn=says("A very long story."), gate=gate, after=3), says("Short."))
        seen.wait_for("> ")
        seen.type("tell a story\r")
        seen.wait_for("A ve")
        seen.interrupt("cancelled; Ctrl-C again ends the chat")
        seen.wait_for("> ")
        seen.type("shorter\r")
        seen.wait_for("Short")
        seen.wait_for("> ")
        seen.interrupt("> ")
        seen.interrupt("\n")
        assert seen.end() == 0
    said = [message["content"] for message in model.asked[-1].messages if message["role"] == "user"]
    assert said == ["mail ann", "shorter"]


@pytest.mark.process
@pytest.mark.timeout(90)
def test_the_end_of_a_long_line_is_seen_as_it_comes_on_a_narrow_terminal(
    model: ScriptedBackend, tmp_path: Path
) -> None:
    story = " ".join(["once"] * 60)
    model.plays(Held(turn=Turn(text=f"{story} otters and so on", size=len(story) + 7), gate=Gate(), after=2))
    with terminal(tmp_path, columns=40) as seen:
        seen.wait_for("> ")
        seen.type("tell a story\r")
        seen.wait_for("otters")
