"""`hooks.md`: what a plugin may implement."""

from __future__ import annotations

from docs.generator.markdown import code, page, sentences, table

from toolplug import hookspecs
from toolplug.execution.isolated_hooks import HOOK_S
from toolplug.providers.lifecycle import CLOSE_S, START_S
from toolplug.providers.plugins.implementations import HOOKS, Asked

_HEAD = """
A plugin is a `FunctionProvider` subclass, a function or class of `(key, config)`, a module with functions that
`@hookimpl` marks, or an object with methods that it marks. A class or function may have several entries in the
configuration, a module or object one. `toolplug.hookspecs` has the specifications, and exports `hookimpl` and
`hookspec`; the mechanism is [pluggy](https://pluggy.readthedocs.io).

* An implementation takes the arguments that it needs, by name, in any order. Every hook but those before
  the start may take `site` too, the `ProviderContext` of its plugin, and a hook around calls may take `tool`, the
  `ToolDefinition` as its caller sees it, which is `None` for an unknown name.
* In a `FunctionProvider`, a method with the name of a hook implements it; elsewhere `@hookimpl` marks the functions.
* `tryfirst` and `trylast` change the order of hooks that every plugin is asked. `wrapper=True` marks a synchronous
  generator around the other implementations of `before_call` or `change_result`. `specname` gives a marked function
  another name than its hook, except in a `FunctionProvider`.
* What a host cannot honour makes the plugin `incompatible` when it is loaded, with the function and the fix: an unknown
  argument, keyword-only arguments, a hook that must be `async` and is not, a name that is nearly that of a hook.
"""

_PROVIDER = """
What a plugin offers itself. `FunctionProvider` has a default for each, so that methods with `@tool`, `@route`,
`@prompt` and `@resource` need no hook.
"""

_CALL = f"""
Asked of every plugin, for the tools of all providers, sessions and MCP servers, in the order of the configuration. Each
may be `async def` or `def`; one that takes longer than {HOOK_S:g} s has failed.
[Call hooks](../how-to/watch-and-veto-calls.md) has examples.
"""

_READ = """
Asked of plugins that are enabled in the configuration and have not been started: functions of a module, static methods,
or methods of an object. [Parts of the host](../how-to/write-a-part.md) is a page about `host_part`,
[Write a store](../how-to/write-a-store.md) one about `stores`.
"""

_SECTIONS: dict[Asked, tuple[str, str]] = {
    "provider": ("Hooks of one plugin", _PROVIDER),
    "call": ("Hooks around every call", _CALL),
    "plugin": ("Hooks of every plugin", "Asked of every plugin after its start."),
    "read": ("Hooks before the start", _READ),
}

_ORDER = f"""
## Life

The host calls the constructor, `start`, `call_tracers`, `tools`, `prompts`, `resources`, `routes` and `collectors`,
each once. Then the plugin receives calls, and `diagnose` if it is inspected. At the end the host calls `aclose` once,
also if `start` failed. `start` may take {START_S:g} s in which the process does nothing, or of work, and `aclose`
{CLOSE_S:g} s. An exception in a hook affects only its own plugin.
"""


_OWN = """
## Hooks of plugins

A plugin specifies hooks of its own with `@hookspec` on functions of its module, or of the module of its class, and asks
them with `site.plugins.hook.NAME(…)`, by keyword: the results come in a list, and an exception is the caller's. Other
plugins implement them with `@hookimpl`; one that nobody specifies, or with an argument that the hook does not have,
makes its plugin `incompatible`. `@hookimpl(optionalhook=True)` implements a hook whose plugin may not be enabled. The
host's own code adds hooks with `host.plugins.add_hookspecs` before it enters the host.
"""


def hooks_page() -> str:
    """The page."""
    parts: list[str] = []
    for asked, (title, text) in _SECTIONS.items():
        rows = [
            (code(f"[async] {written}" if hook.waits is None else written), sentences(getattr(hookspecs, name).__doc__))
            for name, hook in HOOKS.items()
            if hook.asked == asked
            for written in [hook.example_line(name)]
        ]
        parts += [f"## {title}\n\n{text.strip()}", table(("hook", "description"), rows)]
    return page("Hooks", _HEAD, *parts, _OWN, _ORDER)
