"""What somebody waits for who begins with nothing: an installation, a tool of one's own, a server. Elapsed time.

pip fetches from the index that it is configured with. Its cache is that of the machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from urllib.request import Request, urlopen

from benchmarks.frame import Batch, Row, Unit

SECONDS = Unit(name="s", scale=1)
ROOT = Path(__file__).parent.parent
RUNS = 1
"""Each takes up to a minute."""
TOOL = '''\
from toolplug import tool


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number
'''
WHEELS = (ROOT, ROOT / "plugins" / "toolplug-console")
"""What `toolplug[server]` has of this project: an index has them already."""


@contextmanager
def empty_folder() -> Generator[Path]:
    """A folder with a file of one tool."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mine.py").write_text(TOOL, "utf-8")
        yield folder


@asynccontextmanager
async def installed_from_wheels() -> AsyncGenerator[Batch]:
    """`pip install "toolplug[server]"` in a new environment, and `toolplug call mine.py`."""
    with tempfile.TemporaryDirectory() as built:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "wheel", "--no-deps", "--wheel-dir", built, *WHEELS])

        async def batch(n: int) -> float:
            spent_s = 0.0
            for _ in range(n):
                with empty_folder() as folder:
                    _run([sys.executable, "-m", "venv", "environment"], folder)
                    commands = folder / "environment" / "bin"
                    begun = perf_counter()
                    _run([commands / "pip", "--quiet", "install", "--find-links", built, "toolplug[server]"], folder)
                    assert _run([commands / "toolplug", "call", "mine.py", "double", "number=21"], folder) == "42\n"
                    spent_s += perf_counter() - begun
            return spent_s

        yield batch


@asynccontextmanager
async def served_from_clone(*, own: bool) -> AsyncGenerator[Batch]:
    """`make serve` in a new clone until it listens; with `own` the clone too, and a file of one's own is called."""

    async def batch(n: int) -> float:
        spent_s = 0.0
        for _ in range(n):
            with empty_folder() as folder:
                clone, begun = folder / "clone", perf_counter()
                _run(["git", "clone", "--quiet", ROOT, clone])
                if own:
                    shutil.copy(folder / "mine.py", clone)
                else:
                    begun = perf_counter()
                with _listening(clone, "mine.py" if own else "providers.yaml") as url:
                    if own:
                        _call(url)
                    spent_s += perf_counter() - begun
        return spent_s

    yield batch


@contextmanager
def _listening(clone: Path, configuration: str) -> Generator[str]:
    """Run `make serve` until it listens; its output says where."""
    command = ["make", "serve", f"CONFIG={configuration}", "PORT=0"]
    with subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("toolplug listening on "):
                break
        else:
            raise RuntimeError(f"make serve ended:\n{printed}")
        yield line.split()[-1]
        process.terminate()
        process.stdout.read()


def _call(url: str) -> None:
    """Call the tool as the form of the console does."""
    body = json.dumps({"name": "double", "arguments": {"number": 21}}).encode()
    with urlopen(Request(f"{url}/v1/tool-calls", body, {"Content-Type": "application/json"})) as answer:
        assert json.load(answer)["output"] == "42"


def _run(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


ROWS = (
    Row(
        name="from an empty environment to a tool of one's own that was called, by two commands",
        ours=installed_from_wheels,
        hold=60,
        unit=SECONDS,
        pairs=RUNS,
        batch_s=0,
    ),
    Row(
        name="from nothing to a tool of one's own that was called, by `git clone` and `make serve`",
        ours=partial(served_from_clone, own=True),
        hold=90,
        unit=SECONDS,
        pairs=RUNS,
        batch_s=0,
    ),
    Row(
        name="`make serve` in a fresh clone: listens after",
        ours=partial(served_from_clone, own=False),
        hold=45,
        aim=30,
        unit=SECONDS,
        pairs=RUNS,
        batch_s=0,
    ),
)
