"""The clients of the matrix and their environments, each made once from what pins its versions.

Python clients: `requirements/<client>.txt`, a virtual environment each beside this one, since no two of them need the
same version of `openai`. JavaScript clients share the npm packages of `tests/node/packages/clients`.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.environments import make_environment
from tests.node.installed import installed, node, script

REQUIREMENTS = Path(__file__).with_name("requirements")
PROGRAMS = Path(__file__).with_name("programs")

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
    "agent_framework",
    "pi.mjs",
    "ai_sdk_openai.mjs",
    "ai_sdk_open_responses.mjs",
    "openai chat",
    "langchain chat",
    "litellm chat",
    "codex",
)
"""Each has a program and an environment of its name; with `chat` it is the same client with chat completions."""

LARGE_CLIENTS = ("open_webui", "open_webui chat", "cline.mjs", "continue")
"""Too large for each `make judge`: Open WebUI is 1.7 GB and starts in a minute, Cline 220 MB, and Continue is a process
of seconds for each prompt. `TOOLPLUG_CLIENTS=all` runs them too.

`requirements/open_webui.txt` has no `torch`, which 0.12.4 needs for embeddings of its own only and is as large again.
"""

FRAMEWORKS = ("pydantic_ai", "langchain", "openai_agents", "llama_index")
"""Those that there is an adapter for; their environments have what toolplug needs, too."""

APPLICATIONS = ("litestar", "litellm_proxy")
"""Of a web framework that mounts a host only what the environment of the tests has not; LiteLLM's proxy is 580 MB."""

PROGRAMS_OF_PAGES = ("litellm", "claude-code", "codex")
"""Programs whose page `docs/how-to/use-with-NAME.md` is followed with the program itself."""

CHECKERS = ("mypy",)
"""Type checkers that the tests use beside pyright; each reads the packages of the tests' own environment."""


def chosen_clients() -> Sequence[str]:
    """The clients of this run."""
    return (*CLIENTS, *LARGE_CLIENTS) if os.environ.get("TOOLPLUG_CLIENTS") == "all" else CLIENTS


def command_of(client: str) -> tuple[Sequence[str], Path]:
    """The command that runs a client's program, and where; its environment is made if it is not there."""
    if client.endswith(".mjs"):
        place = installed("cline" if client == "cline.mjs" else "clients")
        for program in PROGRAMS.glob("*.mjs"):
            (place / program.name).write_bytes(program.read_bytes())  # packages are looked for beside the program
        return (str(node()), f"use_{client}"), place
    if client == "codex":
        return (sys.executable, "use_codex.py", str(codex())), PROGRAMS
    if client == "continue":
        program = script("continue_cli", "@continuedev/cli")
        return (sys.executable, "use_continue.py", str(node()), str(program)), PROGRAMS
    name, *arguments = client.split()
    return (str(environment(name) / "bin" / "python"), f"use_{name}.py", *arguments), PROGRAMS


def codex() -> Path:
    """Where the program of Codex is, installed if it is not."""
    return next((installed("codex") / "node_modules").glob("@openai/codex-*/vendor/*/bin/codex"))


def environment(client: str) -> Path:
    """Where the environment of a Python client or framework is, made if it is not there.

    Two who make it at once both make one, and the second is thrown away.
    """
    requirements = REQUIREMENTS / f"{client}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    place = Path(sys.prefix) / "clients" / f"{client}-{digest}"
    if place.is_dir():
        return place
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        made = Path(unfinished) / client
        make_environment(made, "--no-deps", "-r", requirements)
        try:
            os.rename(made, place)
        except OSError:
            assert place.is_dir()
    return place


def main() -> None:
    """Make every environment."""
    for client in chosen_clients():
        command_of(client)
    for framework in (*FRAMEWORKS, *APPLICATIONS, *CHECKERS):
        environment(framework)


if __name__ == "__main__":
    main()
