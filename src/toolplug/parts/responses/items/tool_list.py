"""The list of tools that stays for a stored conversation: where its changes are told, and what is stored of it."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import orjson

from toolplug import library_types
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import CALL_TOOL, SEARCH_SOURCE, SEARCH_TOOLS
from toolplug.catalog.exact_json import as_object, dump_json, load_own_json
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.render import fragment
from toolplug.execution.metrics import UncheckedCollector, counter_family
from toolplug.parts.responses.offer import Offer
from toolplug.parts.responses.request import CLIENT_ANSWERS, Item, is_hosted_call
from toolplug.parts.responses.settings import ToolChangesRule
from toolplug.search.conversation import Function, KnownTool, KnownTools, ToolNews, functions_in
from toolplug.search.tools import ToolSearch

Reason = Literal["too_many_changes", "request", "search"]
"""Why a conversation got a new list: it was told of too much, its client asked for other tools, or `search_tools` came
or went."""

Record = Mapping[str, object]
"""What a stored response has of the list."""

_LOG = logging.getLogger("toolplug.responses")


class PrefixChanges(UncheckedCollector):
    """The metric of the lists that were sent anew in conversations whose list stays."""

    def __init__(self, namespace: str = "antwort") -> None:
        self._name = f"{namespace}_prompt_prefix_changes"
        self.counts: Counter[Reason] = Counter()

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the counter."""
        text = "New lists of tools in conversations whose list stays."
        yield counter_family(self._name, text, ["reason"], self.counts.items())


class ListRule(NamedTuple):
    """When the list of a conversation stays, and where new lists are counted.

    `rule` is that of the file; None: where `is_live` returns True for the caller's catalog, as it has a source whose
    tools come and go while it is there.
    """

    rule: ToolChangesRule | None
    changes: PrefixChanges


class StableList:
    """The list of one conversation, for one response that continues it; `kept` are the records of those before.

    `notices` are the texts that tell changes, by the id of the item with which the model is told.
    """

    def __init__(
        self, rule: ListRule, search: ToolSearch, is_live: Callable[[Catalog], bool], kept: Sequence[Record]
    ) -> None:
        self._rule = rule
        self._search = search
        self._is_live = is_live
        self._head: Sequence[object] | None = None
        self._asked = ""
        self._known = KnownTools(())
        self.notices: dict[str, str] = {}
        self._new: dict[str, object] = {}
        self._learned: dict[str, KnownTool] = {}
        self._told: dict[str, str] = {}
        self._last: tuple[Offer, str | None, Offer] | None = None
        for record in kept:
            self._restore(record)

    @property
    def record(self) -> Record:
        """What is to be stored of it with the response; empty if nothing is."""
        if not self._new and not self._learned and not self._told:
            return {}
        learned = {name: list(known) for name, known in self._learned.items()}
        counts = {"changes": self._known.changes, "bytes": self._known.bytes}
        return {**self._new, "known": learned, "notices": dict(self._told), **counts}

    def _restore(self, record: Record) -> None:
        head = record.get("head")
        if isinstance(head, str):
            self._head = cast("list[object]", load_own_json(head.encode()))
            self._asked = str(record["asked"])
            self._known = KnownTools(functions_in(self._head).values())
            self.notices = {}
        if self._head is None or not record:
            return  # the response that began the list is not stored any longer, and its messages neither
        known = cast("Mapping[str, Sequence[object]]", record["known"])
        told = {name: KnownTool(str(digest), bool(callable_)) for name, (digest, callable_) in known.items()}
        self._known.restore(told, int(str(record["changes"])), int(str(record["bytes"])))
        self.notices.update(cast("Mapping[str, str]", record["notices"]))

    def keep(self, offer: Offer, place: str | None, found: Sequence[str]) -> Offer:
        """Return the offer with the list that stays, and have the changes told with the item of this id, `place`.

        The tools `found` are those that a search has told the model of. It is the offer itself where no list stays.
        """
        if not self._applies(offer):
            return offer
        if self._last is None or self._last[0] is not offer or self._last[1] != place:
            self._last = (offer, place, self._keep(offer, place, found))
        return self._last[2]

    def _keep(self, offer: Offer, place: str | None, found: Sequence[str]) -> Offer:
        asked = _digest_of_request(offer)
        listed = functions_in(offer.tools)
        if self._head is None:
            self._begin(offer, listed, asked, found)
        elif asked != self._asked or _names_another(offer, self._head):
            self._begin(offer, listed, asked, found, "request")
        elif _searches(self._head) != _searches(offer.tools):
            self._begin(offer, listed, asked, found, "search")
        else:
            self._tell(offer, listed, asked, place, found)
        assert self._head is not None, "it has just begun"
        catalog = offer.catalog
        if catalog.find(CALL_TOOL) is None:
            catalog = layer_catalogs(catalog, self._search.announced_call(searches=False))
        return offer._replace(tools=self._head, catalog=catalog)

    def _applies(self, offer: Offer) -> bool:
        """Return whether the list stays. Deferred functions of a client can only be called once listed."""
        allows_none = offer.allowed is not None and not offer.tools
        if allows_none or SEARCH_TOOLS in offer.options or _has_own_call_tool(offer):
            return False
        return self._head is not None or self._rule.rule == "append" or self._is_live(offer.catalog)

    def _begin(
        self,
        offer: Offer,
        listed: Mapping[str, Function],
        asked: str,
        found: Sequence[str],
        reason: Reason | None = None,
    ) -> None:
        """Make the list of now the one that stays. `reason` says why, where there was another."""
        if reason is not None:
            self._rule.changes.counts[reason] += 1
            text = "a conversation gets a new list of tools, and loses the cache of its prompt: %s"
            _LOG.log(logging.WARNING if reason == "too_many_changes" else logging.INFO, text, reason)
        searches = _searches(offer.tools)
        (call_tool,) = self._search.announced_call(searches=searches).definitions()
        later = frozenset({CALL_TOOL, *found})
        kept = [tool for tool in offer.tools if _name_of(tool) not in later]
        self._head = [*kept, orjson.loads(fragment(call_tool, "chat"))]
        self._asked = asked
        self._known = KnownTools(functions_in(self._head).values())
        self._new = {"head": dump_json(self._head).decode(), "asked": asked}
        self._learned, self._told, self.notices = {}, {}, {}
        self._learn(self._known.compare(listed, found))

    def _learn(self, changes: ToolNews) -> None:
        self._known.learn(changes)
        self._learned.update(changes.known)

    def _tell(
        self, offer: Offer, listed: Mapping[str, Function], asked: str, place: str | None, found: Sequence[str]
    ) -> None:
        changes = self._known.compare(listed, found)
        if not self._known.has_room(changes):
            self._begin(offer, listed, asked, found, "too_many_changes")
        elif place is not None or not changes.text:
            self._learn(changes)
            if place is not None and changes.text:
                text = f"{self._told[place]}\n{changes.text}" if place in self._told else changes.text
                self._told[place] = self.notices[place] = text


def place_of_notice(sent: Sequence[Item], made: Sequence[Item]) -> str | None:
    """Return the id of the item with which the model is told of changes: the last it has not seen; None without one.

    `made` are the items of the response so far. A message of the system in the middle would be refused by the templates
    of many models.
    """
    for item in reversed(made):
        if is_hosted_call(item.get("type")):
            return str(item["id"])
    for item in reversed(sent):
        if item.get("type") in CLIENT_ANSWERS or (item.get("type") == "message" and item.get("role") == "user"):
            return str(item["id"])
    return None


def _digest_of_request(offer: Offer) -> str:
    """Return a digest of what the client itself says of its tools: of another one the list cannot stay."""
    own = [tool for tool in offer.tools if _name_of(tool) in offer.own]
    asked = [own, sorted(offer.allowed or ())]
    return hashlib.sha256(dump_json(asked)).hexdigest()[:16]


def _names_another(offer: Offer, head: Sequence[object]) -> bool:
    """Return whether the choice is of a function that the list lacks, which a model's server would refuse."""
    name = as_object(as_object(offer.choice).get("function")).get("name")
    return name is not None and all(_name_of(tool) != name for tool in head)


def _has_own_call_tool(offer: Offer) -> bool:
    """Return whether a provider, or the client, has a tool called `call_tool`."""
    tool = offer.catalog.find(CALL_TOOL)
    return CALL_TOOL in offer.own or (tool is not None and tool.definition.ref.source != SEARCH_SOURCE)


def _searches(tools: Sequence[object]) -> bool:
    return any(_name_of(tool) == SEARCH_TOOLS for tool in tools)


def _name_of(tool: object) -> str:
    return str(as_object(as_object(tool).get("function")).get("name"))
