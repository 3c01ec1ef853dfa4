"""What `toolplug check` costs with a lock over fifty packages, and without one: CPU time of the command."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import resource
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from subprocess import DEVNULL, run
from sysconfig import get_path
from tempfile import TemporaryDirectory

from benchmarks.frame import MILLISECONDS, Batch, Row

PACKAGES = 50
MODULES = 6
"""Of each package, of 8 KB each."""
_COMMAND = Path(get_path("scripts")) / "toolplug"
_PROVIDER = '''"""A provider."""

from toolplug import FunctionProvider, tool


class Provider(FunctionProvider):
    """Offers one tool."""

    @tool
    def {name}(self, text: str) -> str:
        "Return the text."
        return text
'''
_MODULE = "".join(f'VALUE_{number} = "{"x" * 60}"\n' for number in range(105))


@asynccontextmanager
async def check(*options: str) -> AsyncGenerator[Batch]:
    """Run the command in a folder of its own; the first run compiles what is imported, and is not counted."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        names = [f"numbered_{number}" for number in range(PACKAGES)]
        for name in names:
            install(folder / "site", name)
        entries = "".join(f"  {name}: {{enabled: true}}\n" for name in names)
        (folder / "providers.yaml").write_text(f"store: memory://\nproviders:\n{entries}", "utf-8")
        _run(folder, "lock")
        _run(folder, "check", *options)

        async def batch(n: int) -> float:
            before = _children_s()
            for _ in range(n):
                _run(folder, "check", *options)
            return _children_s() - before

        yield batch


def install(site: Path, name: str) -> None:
    """Write a provider's package as an installer leaves it."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{name}/provider.py": _PROVIDER.format(name=name),
        **{f"{name}/module_{number}.py": _MODULE for number in range(MODULES)},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: toolplug\n",
        f"{info}/entry_points.txt": f"[toolplug.providers]\n{name} = {name}.provider:Provider\n",
    }
    record = StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.writerow((path, f"sha256={digest}", len(text)))
    rows.writerow((f"{info}/RECORD", "", ""))
    (site / info / "RECORD").write_text(record.getvalue(), "utf-8")


def _run(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    run([_COMMAND, *arguments], check=True, stdin=DEVNULL, stdout=DEVNULL, cwd=folder, env=environment)


def _children_s() -> float:
    """Return the CPU time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


ROWS = (
    Row(
        name="check --locked of 50 packages",
        ours=partial(check, "--locked"),
        other=check,
        against="check",
        hold=1.3,
        aim=1.2,
        unit=MILLISECONDS,
        pairs=9,
        batch_s=0,
    ),
)
