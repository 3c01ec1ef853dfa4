"""That the reader of the pages notices what is not so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.docs.fences import Command, Fence, commands, fences, matches
from tests.docs.reader import Reader, Untrue
from tests.docs.typed_blocks import ELSEWHERE, write_blocks
from tests.requirement_table import ROOT

pytestmark = pytest.mark.requirement("I2-10-examples-run")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^# ", re.MULTILINE)

PAGE = """
```yaml title="providers.yaml"
providers: {}
```

```console
$ echo one \\
  two
one two
$ true
```
"""

UNTRUE = {
    "output": "```console\n$ echo one\ntwo\n```\n",
    "exit": "```console\n$ false\n```\n",
    "python": "```python\nassert 1 == 2\n```\n",
    "configuration": "```yaml\nproviders: {no_such_thing: {enabled: true}}\n```\n",
    "export": "```console\n$ export NAME=$(false)\n```\n",
    "language": "```text\nprose\n```\n",
    "no language": "```\nprose\n```\n",
    "prompt": "```console\necho one\n```\n",
}


def test_a_page_is_read_into_files_and_commands() -> None:
    file, session = fences(PAGE)
    assert file == Fence(2, "yaml", "providers.yaml", "providers: {}\n")
    assert list(commands(session)) == [Command("echo one \\\n  two", "one two"), Command("true", None)]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one", "one\n"),
        ("o…e", "one"),
        ("…", ""),
        ("…", "any\nlines"),
        ("first\n…\nlast", "first\nand\nmore\nlast"),
        ("first\n…\nlast", "first\nlast"),
        ("first\n…", "first"),
        ("…\nlast …", "a\nb\nlast one"),
    ],
)
def test_dots_stand_for_what_a_page_leaves_out(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("one", "one more"), ("o…e", "o\ne"), ("first\n…\nlast", "first\nlast one"), ("…\nlast", "first"), ("a.c", "abc")],
)
def test_what_a_page_shows_must_be_printed(shown: str, printed: str) -> None:
    assert not matches(shown, printed)


@pytest.mark.process
def test_a_true_page_is_read_to_its_end(tmp_path: Path) -> None:
    with Reader(tmp_path, {}) as reader:
        reader.read(PAGE)


@pytest.mark.process
@pytest.mark.parametrize("page", UNTRUE.values(), ids=UNTRUE)
def test_an_untrue_page_is_refused(page: str, tmp_path: Path) -> None:
    with pytest.raises((Untrue, ValueError)), Reader(tmp_path, {}) as reader:
        reader.read(page)


@pytest.mark.process
def test_what_a_page_exports_stays_set(tmp_path: Path) -> None:
    with Reader(tmp_path, {}) as reader:
        reader.read("```console\n$ export NAME=Ada\n$ echo $NAME\nAda\n```\n")
        reader.read("```console\n$ export WHOLE=$(echo $NAME Lovelace)\n$ echo $WHOLE\nAda Lovelace\n```\n")


@pytest.mark.process
def test_a_server_of_a_page_is_asked_on_the_port_that_it_took(tmp_path: Path) -> None:
    page = """
```yaml title="providers.yaml"
providers: {}
```

```console
$ toolplug serve
…
toolplug listening on http://127.0.0.1:8080
$ curl -s localhost:8080/healthz
{"status":"ok"}
```
"""
    with Reader(tmp_path, {}) as reader:
        reader.read(page)


@pytest.mark.requirement("I33-7-typed-blocks")
def test_what_the_type_checker_is_given_is_every_python_block_as_it_is_on_its_page(tmp_path: Path) -> None:
    pages = [path for path in ROOT.glob("docs/**/*.md") if path.relative_to(ROOT).as_posix() not in ELSEWHERE]
    texts = [block.text for page in pages for block in fences(page.read_text("utf-8")) if block.language == "python"]
    assert write_blocks(pages, tmp_path) == len(texts)
    assert sorted(path.read_text("utf-8") for path in tmp_path.rglob("*.py")) == sorted(texts)
    settings = json.loads((tmp_path / "pyrightconfig.json").read_text("utf-8"))
    assert settings["typeCheckingMode"] == "strict"
    roots = {each["root"]: each["extraPaths"] for each in settings["executionEnvironments"]}
    assert roots["docs__tutorial__first_provider"] == ["docs__tutorial__first_provider/toolplug-weather/src"]


@pytest.mark.requirement("I33-9-one-title")
def test_each_page_has_one_heading_of_the_first_level() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")]
    prose = {page: FENCE.sub("", page.read_text("utf-8")) for page in pages}
    wrong = {page.name: len(found) for page, text in prose.items() if len(found := TITLE.findall(text)) != 1}
    assert wrong == {}
