"""That the reader of the pages notices what is not so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.fences import Command, Fence, commands, fences, matches
from tests.docs.reader import Reader, Untrue

pytestmark = pytest.mark.requirement("I2-10-examples-run")

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
