"""Which tools each configured caller can call: a service for plugins whose texts name tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from toolplug.catalog.call import Principal
from toolplug.execution.plans import CALL_SCOPE
from toolplug.host.file.settings import HostSettings
from toolplug.host.tool_infos import CatalogPage


class CallableTools:
    """The tools of a host by caller. A provider gets it as `site.service(CallableTools)` once the host is open.

    ```python
    from collections.abc import Sequence

    from toolplug import CallableTools, FunctionProvider, ProviderContext

    class Guide(FunctionProvider):
        async def start(self, site: ProviderContext) -> None:
            self.site = site

        async def diagnose(self) -> Sequence[str]:
            callers = self.site.service(CallableTools).by_caller()
            return [f"{name} cannot send mail" for name, tools in callers.items() if not tools.get("send_mail")]
    ```
    """

    def __init__(
        self, settings: Callable[[], HostSettings], page: Callable[[Principal, str | None], CatalogPage]
    ) -> None:
        self._settings = settings
        self._page = page

    def by_caller(self) -> Mapping[str, Mapping[str, bool]]:
        """Return by caller whether it can call each tool that `GET /api/catalog` has for it; nothing is started.

        Callers are the API keys of the file by subject, as each agent that they name, and otherwise each agent of the
        file; a host without both has one, everybody. Bearers of tokens are known only as the agents that they act as.
        """
        # Keys of one tenant with the same scopes have the same page.
        pages: dict[tuple[object, ...], Mapping[str, bool]] = {}
        found: dict[str, Mapping[str, bool]] = {}
        for name, principal, agent in _find_callers(self._settings()):
            key = (principal.tenant, principal.scopes, principal.agents, agent)
            if key not in pages:
                pages[key] = _read_page(self._page(principal, agent))
            found[name] = pages[key]
        return found


def _read_page(page: CatalogPage) -> Mapping[str, bool]:
    tools: list[dict[str, Any]] = orjson.loads(page.body)["tools"]
    return {tool["name"]: tool["callable"] for tool in tools}


def _find_callers(settings: HostSettings) -> Iterator[tuple[str, Principal, str | None]]:
    """Yield the name of each caller for messages, its principal, and the agent that it acts as."""
    keys = () if settings.auth is None else settings.auth.api_keys
    named: set[str] = set()
    for key in keys:
        agents = None if key.agents is None else frozenset(key.agents)
        principal = Principal(key.subject, key.tenant, frozenset(key.scopes), agents)
        who = key.subject if key.tenant == Principal().tenant else f"{key.subject} of {key.tenant}"
        for agent in key.agents or ():
            named.add(agent)
            yield f"{who} as {agent}", principal, agent
        if agents is None:
            yield who, principal, None
    may_call = frozenset({CALL_SCOPE})
    for agent in settings.agents:
        if agent not in named:
            yield f"agent {agent}", Principal(scopes=may_call), agent
    if settings.auth is None and not settings.agents:
        yield "everybody", Principal(scopes=may_call), None
