"""Importing one provider package: what comes of it, and of everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.providers.fake_distribution import install, provides, run_with

pytestmark = pytest.mark.process

GOOD = """
from pydantic import BaseModel
from toolplug.providers.authoring import tool
from toolplug.providers.provider import FunctionProvider

class Notes(FunctionProvider):
    class Config(BaseModel):
        limit: int = 5

    @tool
    async def add(self, text: str) -> None: ...

class Bare(FunctionProvider): ...

def made(key, config):
    assert config == {"limit": 7}
    return Bare()

made_with_config = lambda key, config: Notes(config)
made_with_config.Config = Notes.Config
"""

LOAD = """
import json, sys
from toolplug.errors import ProviderError
from toolplug.packages.entry_points import find_installed
from toolplug.packages.loading import load

def outcome(kind, config, within_s):
    try:
        loaded = load(find_installed().types[kind][0], within_s=within_s)
        provider = loaded.build("mine", config)
    except ProviderError as error:
        return {"state": error.state, "message": str(error), "fix": error.fix}
    return {
        "class": type(provider).__name__,
        "key": provider.key,
        "config": repr(provider.config),
        "model": loaded.config and loaded.config.__qualname__,
        "open": loaded.open_settings,
    }

print(json.dumps({kind: outcome(kind, config, within_s) for kind, (config, within_s) in WANTED.items()}))
"""


def outcomes(folder: Path, wanted: dict[str, tuple[object, float]]) -> Any:
    """What loading and building gives for each type, with this config and within this time, in one interpreter."""
    return run_with(folder, f"WANTED = {wanted!r}\n{LOAD}")


@pytest.mark.requirement("C-12-entry-point")
def test_an_entry_point_names_a_subclass_or_a_function_of_key_and_config(tmp_path: Path) -> None:
    types = {"notes": "good:Notes", "bare": "good:Bare", "made": "good:made", "with_config": "good:made_with_config"}
    install(tmp_path, "toolplug-good", provides(**types), modules={"good": GOOD})
    configs = {"notes": None, "bare": None, "made": {"limit": 7}, "with_config": {"limit": 8}}
    assert outcomes(tmp_path, {kind: (config, 10.0) for kind, config in configs.items()}) == {
        "notes": {"class": "Notes", "key": "mine", "config": "Config(limit=5)", "model": "Notes.Config", "open": False},
        "bare": {"class": "Bare", "key": "mine", "config": "None", "model": None, "open": False},
        "made": {"class": "Bare", "key": "mine", "config": "None", "model": None, "open": True},
        "with_config": {
            "class": "Notes",
            "key": "mine",
            "config": "Config(limit=8)",
            "model": "Notes.Config",
            "open": False,
        },
    }


IMPORTS = """
from __future__ import annotations
from toolplug.providers.authoring import tool
from toolplug.providers.provider import FunctionProvider
"""

NOT_A_PROVIDER = "is no plugin: write a FunctionProvider subclass, a function or class of (key, config), or a module or"

UNRESOLVED = f"""{IMPORTS}
class Hidden(FunctionProvider):
    @tool
    def pay(self, price: Money): ...

def Broken(key, config):
    return Hidden()
"""

BROKEN = {
    "import_error": (
        "import missing_dependency",
        "raised ModuleNotFoundError: No module named 'missing_dependency'",
    ),
    "syntax_error": ("def Broken(:", "importing syntax_error raised SyntaxError: "),
    "system_exit": ("import sys; sys.exit(3)", "importing system_exit raised SystemExit: 3 at "),
    "interrupt": ("raise KeyboardInterrupt", "importing interrupt raised KeyboardInterrupt at "),
    "missing": (f"{IMPORTS}class Other(FunctionProvider): ...", "missing has no 'Broken' (AttributeError: "),
    "neighbour": (f"{IMPORTS}class Other(FunctionProvider): ...", "; its providers are Other"),
    "exiting": ("def __getattr__(name): raise SystemExit", "exiting has no 'Broken' (SystemExit"),
    "number": ("Broken = 5", f"number:Broken {NOT_A_PROVIDER}"),
    "stranger": ("class Broken: ...", NOT_A_PROVIDER),
    "one_argument": ("def Broken(key): ...", NOT_A_PROVIDER),
    "giving_5": ("def Broken(key, config): return 5", "giving_5:Broken gave a int, which is no FunctionProvider"),
    "config": (f"{IMPORTS}class Broken(FunctionProvider):\n    Config = 5", "is no pydantic model"),
    "unresolved": (
        f"{IMPORTS}class Broken(FunctionProvider):\n    @tool\n    async def pay(self, price: Money) -> None: ...",
        "Broken.pay: the annotation 'Money' of parameter 'price' cannot be resolved",
    ),
    "unresolved_made": (UNRESOLVED, "Hidden.pay: the annotation 'Money' of parameter 'price' cannot be resolved"),
    "many": (
        f"{IMPORTS}class Broken(FunctionProvider):\n    @tool\n    async def pay(self, *prices: int) -> None: ...",
        "Broken.pay: parameter 'prices' takes any number of arguments",
    ),
    "endless": ("import threading; threading.Event().wait()", "importing endless has not ended after 0.05 s"),
}
"""Type, which is also its module → source and what is told."""


@pytest.mark.requirement(
    "C-5-state-import-failed",
    "C-12-tool-unresolved",
    "H-package-import-error",
    "H-package-missing-attribute",
    "H-package-slow-import",
    "H-package-system-exit",
)
def test_what_fails_at_import_is_told_with_distribution_version_and_fix(tmp_path: Path) -> None:
    for kind, (source, _) in BROKEN.items():
        install(tmp_path, f"toolplug-{kind}", provides(**{kind: f"{kind}:Broken"}), modules={kind: source})
    found = outcomes(tmp_path, {kind: (None, 0.05 if kind == "endless" else 10.0) for kind in BROKEN})
    for kind, (_, told) in BROKEN.items():
        assert found[kind]["state"] == "import-failed"
        assert found[kind]["message"].startswith(f"toolplug-{kind} 1.0 ({kind}): ")
        assert told in found[kind]["message"]
        missing = kind == "import_error"
        way = "install the package that has 'missing_dependency'" if missing else f"reinstall or update toolplug-{kind}"
        assert found[kind]["fix"] == f"{way}, or remove its entry"


SLOW = """
import time

def work(cpu_s):
    began = time.thread_time()
    while time.thread_time() - began < cpu_s:
        pass

for _ in range(10):
    work(0.02)
    time.sleep(0.2)

class Broken:
    def __init__(self, key, config): ...
"""
BUSY = """
while True:
    pass
"""


@pytest.mark.requirement("H-time-loop")
def test_an_import_that_gets_little_of_the_processor_is_waited_for(tmp_path: Path) -> None:
    for kind, source in (("slow", SLOW), ("busy", BUSY)):
        install(tmp_path, f"toolplug-{kind}", provides(**{kind: f"{kind}:Broken"}), modules={kind: source})
    found = outcomes(tmp_path, {"slow": (None, 0.4), "busy": (None, 0.4)})
    assert "slow:Broken gave a Broken" in found["slow"]["message"]
    assert "importing busy has not ended after 0.4 s" in found["busy"]["message"]


@pytest.mark.requirement("C-5-state-incompatible", "I2-4-hookspecs")
def test_what_does_not_fit_this_toolplug_is_incompatible(tmp_path: Path) -> None:
    source = f"{IMPORTS}class Broken(FunctionProvider):\n    def start(self): ...\n"
    modules = {"wrong": f"{source}def made(key, config): return Broken()", "old": "raise SystemExit('imported')"}
    install(tmp_path, "toolplug-wrong", provides(named="wrong:Broken", made="wrong:made"), modules=modules)
    install(tmp_path, "toolplug-old", provides(old="old:Old"), requires=("toolplug<0.0.1",))
    found = outcomes(tmp_path, dict.fromkeys(("named", "made", "old"), (None, 10.0)))
    for kind in ("named", "made"):
        assert found[kind]["state"] == "incompatible"
        assert "Broken.start must be async" in found[kind]["message"]
        assert "write it as `async def start(self, site)`" in found[kind]["message"]
    assert found["old"] == {
        "state": "incompatible",
        "message": "toolplug-old 1.0 (old): it requires toolplug<0.0.1",
        "fix": "install a version of it for this toolplug",
    }
