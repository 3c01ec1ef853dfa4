"""The clients of the matrix and their environments, each made once from what pins its versions.

Python clients: `requirements/<client>.txt`, a virtual environment each beside this one, since no two of them need the
same version of `openai`. JavaScript clients share the npm packages of `tests/node/packages/clients`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.node.installed import installed, node

REQUIREMENTS = Path(__file__).with_name("requirements")
PROGRAMS = Path(__file__).with_name("programs")
INSTALL_S = 600

CLIENTS = (
    "openai",
    "openai.mjs",
    "openai_agents",
    "pydantic_ai",
    "langchain",
    "litellm",
    "haystack",
    "agno",
    "strands",
    "ai_sdk_openai.mjs",
    "ai_sdk_open_responses.mjs",
    "openai chat",
    "langchain chat",
    "litellm chat",
)
"""Each has a program and an environment of its name; with `chat` it is the same client with chat completions."""

FRAMEWORKS = ("pydantic_ai", "langchain", "openai_agents", "llama_index")
"""Those that there is an adapter for; their environments have what toolplug needs, too."""


def command_of(client: str) -> tuple[Sequence[str], Path]:
    """The command that runs a client's program, and where; its environment is made if it is not there."""
    if client.endswith(".mjs"):
        place = installed("clients")
        for program in PROGRAMS.glob("*.mjs"):
            (place / program.name).write_bytes(program.read_bytes())  # packages are looked for beside the program
        return (str(node()), f"use_{client}"), place
    name, *arguments = client.split()
    return (str(environment(name) / "bin" / "python"), f"use_{name}.py", *arguments), PROGRAMS


def environment(client: str) -> Path:
    """Where the environment of a Python client or framework is, made if it is not there."""
    requirements = REQUIREMENTS / f"{client}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    place = Path(sys.prefix) / "clients" / f"{client}-{digest}"
    if place.is_dir():
        return place
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        made = Path(unfinished) / client
        venv.create(made, with_pip=True)
        command = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "-r", requirements]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        assert done.returncode == 0, done.stderr
        os.rename(made, place)
    return place


def main() -> None:
    """Make every environment."""
    for client in CLIENTS:
        command_of(client)
    for framework in FRAMEWORKS:
        environment(framework)


if __name__ == "__main__":
    main()
