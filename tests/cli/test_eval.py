"""`toolplug eval` asks a model which tool it would call, and calls none."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.cli.conftest import Run
from tests.responses.backend.script import Answer, Call, Refused, calls, says
from tests.responses.backend.scripted import Asked, ScriptedBackend
from uvicorn import Config, Server

pytestmark = [pytest.mark.process, pytest.mark.requirement("I15-4-eval")]

Write = Callable[..., Path]

NOTES = """
from pathlib import Path
from toolplug import tool

@tool
def weather(city: str) -> str:
    "Tell the weather."
    Path("called").touch()
    return "fine"

@tool
def mail(to: str) -> str:
    "Send a mail."
    return "sent"
"""


@pytest.fixture
def backend(write: Write, tmp_path: Path) -> Iterator[ScriptedBackend]:
    """Serves a scripted model; the configuration names it and has two tools of a file."""
    (tmp_path / "notes.py").write_text(NOTES)
    application = ScriptedBackend()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(Config(application, lifespan="off", log_level="critical", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        write(
            "providers: {notes: {type: ./notes.py, enabled: true}}\n"
            f"responses: {{backend: {{base_url: '{url}', model: m1, retries: 0}}}}"
        )
        yield application
        server.should_exit = True
        thread.join()


def cases(folder: Path, *items: object, **more: object) -> str:
    file = folder / "cases.yaml"
    file.write_text(json.dumps({"cases": items, **more}))
    return file.name


def with_many_tools(folder: Path, write: Write) -> None:
    """Add sixty tools that are searched for."""
    tools = [f'@tool\ndef t{number}() -> str:\n    "Paint {number}."\n    return ""' for number in range(60)]
    (folder / "many.py").write_text("\n".join(["from toolplug import tool", *tools]))
    text = (folder / "providers.yaml").read_text()
    write(text.replace("providers: {", "providers: {many: {type: ./many.py, enabled: true, offer: search}, "))


def by_sentence(answers: dict[str, Answer]) -> Callable[[Asked], Answer]:
    return lambda asked: answers[asked.messages[-1]["content"]]


def test_a_model_that_chooses_well_is_right_and_no_tool_is_called(
    run: Run, backend: ScriptedBackend, tmp_path: Path
) -> None:
    backend.answers(
        by_sentence(
            {"Rain in Cork?": calls(Call("weather", '{"city": "Cork"}')), "Thank you.": says("You are welcome.")}
        )
    )
    file = cases(
        tmp_path,
        {"ask": "Rain in Cork?", "tool": ["weather", "mail"], "arguments": {"city": "Cork"}},
        {"ask": "Thank you.", "tool": None},
        instructions="Be brief.",
    )
    done = run("eval", file, "--repeat", "2")
    assert (done.code, done.out.splitlines()[-1]) == (0, "4 of 4 right")
    assert backend.asked[0].messages[0] == {"role": "system", "content": "Be brief."}
    assert backend.asked[0].tool_names == ["weather", "mail"]
    assert not (tmp_path / "called").exists()


def test_wrong_choices_are_listed_with_what_was_called_instead(
    run: Run, backend: ScriptedBackend, tmp_path: Path
) -> None:
    backend.answers(
        by_sentence(
            {
                "one": calls(Call("mail", '{"to": "Ada"}')),
                "two": calls(Call("weather", '{"city": "Oslo"}')),
                "three": calls(Call("weather", "{")),
                "four": says("I do not know."),
                "five": Refused(status=400, message="too hot"),
            }
        )
    )
    file = cases(
        tmp_path,
        {"ask": "one", "tool": "weather"},
        {"ask": "two", "tool": "weather", "arguments": {"city": "Cork"}},
        {"ask": "three", "tool": "weather"},
        {"ask": "four", "tool": "weather"},
        {"ask": "five", "tool": "weather"},
    )
    done = run("eval", file, "--json")
    whys = [case["why"] for case in done.json["cases"]]
    assert (done.code, done.json["right"], done.json["of"], done.json["model"]) == (1, 0, 5, "m1")
    assert whys[:2] == ["another tool was called", "the arguments differ: city='Oslo'"]
    assert whys[2].startswith("the arguments are no JSON object")
    assert whys[3] == "no tool was called"
    assert whys[4].startswith("no answer: ")
    assert done.json["cases"][0]["called"] == "mail"
    lines = run("eval", file).out.splitlines()
    assert "0 of 5 right" in lines
    assert "1 × mail instead of weather" in lines


def test_a_share_may_be_enough(run: Run, backend: ScriptedBackend, tmp_path: Path) -> None:
    backend.answers(by_sentence({"one": calls(Call("mail")), "two": calls(Call("weather"))}))
    file = cases(tmp_path, {"ask": "one", "tool": "weather"}, {"ask": "two", "tool": "weather"})
    assert run("eval", file, "--min", "0.5").code == 0
    assert run("eval", file, "--min", "0.6").code == 1


def test_a_model_may_search_for_the_tool_first(
    run: Run, write: Write, backend: ScriptedBackend, tmp_path: Path
) -> None:
    with_many_tools(tmp_path, write)

    def answer(asked: Asked) -> Answer:
        if asked.messages[-1]["role"] == "tool":
            assert "t7" in asked.messages[-1]["content"]
            return calls(Call("call_tool", '{"name": "t7", "arguments": {}}'))
        return calls(Call("search_tools", '{"query": "paint 7"}'))

    backend.answers(answer)
    done = run("eval", cases(tmp_path, {"ask": "Paint a seven.", "tool": "t7"}), "--json")
    assert (done.code, done.json["cases"][0]["called"]) == (0, "t7")


def test_a_model_that_only_searches_has_called_the_search(
    run: Run, write: Write, backend: ScriptedBackend, tmp_path: Path
) -> None:
    with_many_tools(tmp_path, write)
    backend.plays_for_ever(calls(Call("search_tools", '{"query": "paint"}')))
    done = run("eval", cases(tmp_path, {"ask": "Paint.", "tool": "t7"}), "--json")
    assert (done.code, done.json["cases"][0]["called"], len(backend.asked)) == (1, "search_tools", 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: []", "cases.yaml:1"),
        ("cases: [{ask: Hello}]", "cases[0].tool"),
        ("cases: [{ask: Hello, tool: wether}]", "nearest: 'weather'"),
        ("cases: [{ask: Hello, tool: null, arg: {}}]", "arg"),
        ("- ask: Hello", "must be a mapping"),
        ("cases: [", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    run: Run, backend: ScriptedBackend, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "cases.yaml").write_text(text)
    done = run("eval", "cases.yaml")
    assert (done.code, backend.asked) == (1, [])
    assert said in done.err
    assert re.search(r"cases\.yaml:[12]:", done.err)


def test_without_a_model_or_with_one_that_fails_it_says_so(
    run: Run, write: Write, backend: ScriptedBackend, tmp_path: Path
) -> None:
    file = cases(tmp_path, {"ask": "Hello", "tool": "weather"})
    backend.plays(Refused(status=401, message="no such key"))
    assert "no such key" in run("eval", file).err
    write("providers: {}\nresponses: {backend: {base_url: 'http://127.0.0.1:9/v1', model: m1}}")
    assert "there are no tools to choose from" in run("eval", file).err
    write("providers: {hello: {enabled: true}}")
    failed = run("eval", file)
    assert failed.code == 1
    assert "there is no model to ask" in failed.err
    assert "responses: {backend:" in failed.err


def test_saved_answers_are_judged_again_without_a_model_and_tools_without_a_case_are_named(
    run: Run, backend: ScriptedBackend, tmp_path: Path
) -> None:
    backend.plays(calls(Call("weather", '{"city": "Cork"}')))
    done = run("eval", cases(tmp_path, {"ask": "Rain in Cork?", "tool": "weather"}), "--save", "answers.json")
    assert done.out.splitlines()[-2:] == ["1 of 1 right", "1 of 2 tools are in no case: mail"]
    changed = cases(tmp_path, {"ask": "Rain in Cork?", "tool": "mail"}, {"ask": "And mail?", "tool": "mail"})
    again = run("eval", changed, "--saved", "answers.json", "--json")
    assert len(backend.asked) == 1
    assert [case["why"] for case in again.json["cases"]] == ["another tool was called", "there is no saved answer"]
    assert again.json["uncovered"] == ["weather"]
    (tmp_path / "answers.json").write_text("{}")
    assert "no answers that --save has written" in run("eval", changed, "--saved", "answers.json").err


MAIL_THE_WEATHER = {
    "ask": "Mail Ada the weather in Cork.",
    "steps": [
        {"tool": "weather", "arguments": {"city": "Cork"}, "answer": {"sky": "grey"}},
        {"tool": ["mail", "weather"], "arguments": {"to": "Ada"}, "answer": "sent"},
        {"tool": None},
    ],
}


def a_model_of_steps(asked: Asked) -> Answer:
    """Call the next tool by what the last one has answered."""
    answers = [message["content"] for message in asked.messages if message["role"] == "tool"]
    if not answers:
        return calls(Call("weather", '{"city": "Cork"}', "call_1"))
    assert answers[0] == '{"sky":"grey"}'
    return calls(Call("mail", '{"to": "Ada"}', "call_2")) if len(answers) == 1 else says("It is grey, and she knows.")


@pytest.mark.requirement("I34-eval-steps")
def test_a_case_of_several_steps_gives_the_answers_and_is_right_when_each_call_is(
    run: Run, backend: ScriptedBackend, tmp_path: Path
) -> None:
    backend.answers(a_model_of_steps)
    file = cases(tmp_path, MAIL_THE_WEATHER)
    done = run("eval", file, "--save", "answers.json")
    assert done.code == 0, done.err
    assert "weather → mail or weather → no tool" in done.out
    assert len(backend.asked) == 3
    assert not (tmp_path / "called").exists()
    again = run("eval", file, "--saved", "answers.json", "--json")
    assert (again.code, again.json["right"], again.json["uncovered"]) == (0, 1, [])
    assert [step["called"] for step in again.json["cases"][0]["steps"]] == ["weather", "mail", None]


@pytest.mark.requirement("I34-eval-steps")
def test_the_first_step_that_is_wrong_ends_the_case_and_is_named(
    run: Run, backend: ScriptedBackend, tmp_path: Path
) -> None:
    both = calls(Call("weather", '{"city": "Cork"}', "call_1"), Call("weather", '{"city": "Oslo"}', "call_2"))
    backend.answers(lambda asked: both)
    done = run("eval", cases(tmp_path, MAIL_THE_WEATHER), "--json")
    assert (done.code, done.json["right"], len(backend.asked)) == (1, 0, 1)
    assert done.json["cases"][0]["why"] == "step 2: the arguments differ: to=None"
    assert [step["why"] for step in done.json["cases"][0]["steps"]] == [None, "the arguments differ: to=None"]
    backend.answers(lambda asked: says("No."))
    assert "step 1: no tool was called" in run("eval", cases(tmp_path, MAIL_THE_WEATHER)).out


@pytest.mark.requirement("I34-eval-steps")
@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({**MAIL_THE_WEATHER, "tool": "mail"}, "a case has steps or tool, not both"),
        ({"ask": "Hello", "steps": [{"tool": "wether"}]}, "nearest: 'weather'"),
        ({"ask": "Hello", "steps": [{"answer": "x"}]}, "cases[0].steps[0].tool"),
    ],
)
def test_steps_that_are_wrong_are_refused(
    run: Run, backend: ScriptedBackend, tmp_path: Path, case: object, said: str
) -> None:
    done = run("eval", cases(tmp_path, case))
    assert (done.code, backend.asked) == (1, [])
    assert said in done.err
