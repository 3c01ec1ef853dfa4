"""`toolplug serve --reload`: changed files and changed code are taken up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.process import serving
from tests.providers.fake_distribution import install, provides

pytestmark = pytest.mark.judge

HELLO = "providers: {hello: {enabled: true}}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for packages of the server's environment."""
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.mark.requirement("C-2-reload-watch")
def test_with_reload_a_changed_file_is_read_again(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HELLO)
    with serving("--reload", folder=tmp_path) as service:
        service.wait_for("watching")
        write("providers: {hello: {enabled: true, greeting: Hi}}")
        service.wait_for("configuration reloaded: hello started")
        assert service.call("hello").json()["output"] == "Hi, world!"


def test_with_reload_a_changed_file_of_a_provider_is_taken_up_without_a_restart(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    code = "from toolplug import tool\n\n@tool\ndef answer() -> str:\n    return 'old'\n"
    (tmp_path / "tools.py").write_text(code)
    write("providers: {mine: {type: ./tools.py, enabled: true}}")
    with serving("--reload", folder=tmp_path) as service:
        service.wait_for("watching")
        (tmp_path / "tools.py").write_text("syntax error")
        service.wait_for("configuration not reloaded")
        assert service.call("answer").json()["output"] == "old"
        (tmp_path / "tools.py").write_text(code.replace("old", "brand new"))
        service.wait_for("configuration reloaded: mine started")
        assert service.call("answer").json()["output"] == "brand new"


@pytest.mark.requirement("C-2-reload-watch")
def test_with_reload_changed_code_is_taken_up_on_the_same_port(
    tmp_path: Path, write: Callable[..., Path], site: Path
) -> None:
    package = site / "fresh_pkg"
    install(site, "toolplug-fresh", provides(fresh="fresh_pkg.provider:Fresh"))
    package.mkdir()
    (package / "__init__.py").touch()
    code = "from toolplug import FunctionProvider, tool\nclass Fresh(FunctionProvider):\n    @tool\n"
    code += "    async def answer(self) -> str:\n        return 'old'\n"
    (package / "provider.py").write_text(code)
    first_ns = (package / "provider.py").stat().st_mtime_ns
    write("providers: {fresh: {enabled: true}}")
    with serving("--reload", "-v", folder=tmp_path, site=site) as service:
        url = service.url
        service.wait_for("watching")
        (package / "provider.py").write_text("syntax error")
        service.wait_for("the changed code was not taken up")
        assert service.call("answer").json()["output"] == "old"
        service.wait_for("watching", times=2)
        _save_in_the_same_second(package / "provider.py", code.replace("old", "new"), first_ns)
        assert service.wait_for("toolplug listening on", times=2).endswith(url)
        assert service.call("answer").json()["output"] == "new"


def _save_in_the_same_second(file: Path, text: str, first_ns: int) -> None:
    """Save a text of the same size with a time in the second of the first one, for which Python has compiled code."""
    other_ns = first_ns + 1 if (first_ns + 1) // 10**9 == first_ns // 10**9 else first_ns - 1
    saved = file.with_suffix(".saved")
    saved.write_text(text)
    os.utime(saved, ns=(other_ns, other_ns))
    saved.replace(file)


EDITED = """
from pathlib import Path
from toolplug import FunctionProvider, tool

class Edited(FunctionProvider):
    @tool
    async def answer(self) -> str:
        return "old"

    async def start(self, site):
        file = Path(__file__)
        file.write_text(file.read_text().replace("old" + '"', "new" + '"'))
"""


@pytest.mark.requirement("C-2-reload-watch")
def test_with_reload_code_that_is_saved_during_the_start_is_taken_up(
    tmp_path: Path, write: Callable[..., Path], site: Path
) -> None:
    package = site / "edited_pkg"
    install(site, "toolplug-edited", provides(edited="edited_pkg.provider:Edited"))
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "provider.py").write_text(EDITED)
    write("providers: {edited: {enabled: true}}")
    with serving("--reload", folder=tmp_path, site=site) as service:
        service.wait_for("toolplug listening on", times=2)
        assert service.call("answer").json()["output"] == "new"
