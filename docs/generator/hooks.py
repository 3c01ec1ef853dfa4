"""`hooks.md`: what a provider may implement."""

from __future__ import annotations

from docs.generator.markdown import code, page, sentences, table

from toolplug.providers.hooks import HOOKS, HookSpecs
from toolplug.providers.lifecycle import CLOSE_S, START_S
from toolplug.providers.provider import FunctionProvider

_HEAD = """
The hooks of a provider, with the signature that each must have. `FunctionProvider` has a default for each but the two
host-wide ones, so a provider implements only what it needs; methods with `@tool` and `@route` need no hook.
"""

_ORDER = f"""
The host calls the constructor, `start`, `tools`, `routes` and `collectors`, each once and in this order. Then the
provider receives calls. At the end the host calls `aclose` once, also if `start` failed. `start` may take {START_S:g}
s and `aclose` {CLOSE_S:g} s. An exception in a hook affects only its own provider.
"""


def hooks_page() -> str:
    """The page."""
    rows = [(code(_written(name)), sentences(getattr(HookSpecs, name).__doc__), _default(name)) for name in HOOKS]
    return page("Hooks", _HEAD, table(("hook", "description", "has a default"), rows), _ORDER)


def _written(name: str) -> str:
    hook = HOOKS[name]
    return f"[async] {hook.written(name)}" if hook.waits is None else hook.written(name)


def _default(name: str) -> str:
    return "yes" if hasattr(FunctionProvider, name) else "no"
