"""`toolplug dashboard`: a Grafana board and Prometheus alert rules for the configuration."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import yaml

from toolplug.catalog.text import pluralize
from toolplug.cli.logs import log_warnings
from toolplug.cli.options import ConfigOption, JsonOption, config_file
from toolplug.cli.output import echo, print_json
from toolplug.config.yaml_tree import Value
from toolplug.execution.plans import ToolPolicy
from toolplug.host.file.configuration import Configuration, read_configuration
from toolplug.packages.entry_points import find_installed

BOARD_FILE = "toolplug-dashboard.json"
RULES_FILE = "toolplug-alerts.yml"

app: typer.Typer = typer.Typer()


@app.command()
def dashboard(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where to write the files; - is stdout, as JSON. Default: next to the configuration.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a Grafana dashboard and Prometheus alert rules for this configuration.

    They have its providers, MCP servers and metrics namespace, and nothing for what is not configured. The same
    configuration gives the same files. Imports the packages of the enabled providers and starts nothing.

    Example: toolplug dashboard -o monitoring
    """
    log_warnings(config)
    files = config_file(config)
    of = read_monitored(read_configuration(files, os.environ, find_installed()).release())
    shown, rules = board(of), alerts(of)
    if as_json or output == Path("-"):
        print_json({"dashboard": shown, "rules": rules})
        return
    folder = output or files.file.parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BOARD_FILE).write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", "utf-8", newline="\n")
    # Wide, so that no expression of PromQL is folded into several lines.
    text = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=1_000)
    (folder / RULES_FILE).write_text(text, "utf-8", newline="\n")
    panels = sum(panel["type"] != "row" for row in shown["panels"] for panel in (row, *row.get("panels", ())))
    echo(f"{folder / BOARD_FILE} is written, with {pluralize(panels, 'panel')}")
    echo(f"{folder / RULES_FILE} is written, with {pluralize(len(rules['groups'][0]['rules']), 'alert')}")


LIMITING = ("rate", "max_concurrency", "breaker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """What a configuration has. `sources` are enabled providers and servers as the label `provider` names them.

    `asks` is whether a call may wait for a person, `limits` whether a limit is set, `routed` whether a provider may
    have routes; the others are whether a section is there.
    """

    namespace: str
    providers: Sequence[str]
    servers: Sequence[str]
    asks: bool
    limits: bool
    quotas: bool
    auth: bool
    sessions: bool
    routed: bool

    @property
    def sources(self) -> Sequence[str]:
        """The values of the label `provider`: keys of providers, and `mcp:` with the ids of servers."""
        return (*self.providers, *(f"mcp:{server}" for server in self.servers))


def read_monitored(configuration: Configuration) -> Monitored:
    """Return what a valid configuration has."""
    settings = configuration.settings
    wanted = configuration.providers.wanted
    running = {key: item.entry for key, item in wanted.items() if item.build is not None}
    servers = {name: server for name, server in configuration.servers.servers.items() if server.enabled}
    rules = [rule for part in (*running.values(), *servers.values()) for rule in part.tools.values()]
    policies = [
        *(ToolPolicy(rule.policy) for rule in rules if rule.policy is not None),
        *(ToolPolicy(server.policy) for server in servers.values()),
        *(ToolPolicy(policy) for facts in configuration.facts.values() for policy in facts.policies),
    ]
    limits = [settings.limits, *(toolset.limits for toolset in settings.toolsets.values())]
    limits += [part.limits for part in (*running.values(), *servers.values(), *rules)]
    return Monitored(
        namespace=settings.metrics.namespace,
        providers=tuple(running),
        servers=tuple(servers),
        asks=any(policy.word == "ask" for policy in policies),
        limits=any(getattr(item, name) is not None for item in limits for name in LIMITING),
        quotas=settings.quotas.model_fields_set != set(),
        auth=settings.auth is not None,
        sessions="sessions" in settings.model_fields_set,
        routed=any(
            item.type.routes or "routes" in item.type.unchecked
            for key, item in configuration.providers.loaded.items()
            if key in running
        ),
    )


Json = dict[str, Any]
_WIDTH = 24
_DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_PLACEHOLDER = re.compile("<([a-z]+)>")


def alerts(of: Monitored) -> Json:
    """Return the rule file as data: one group; the same configuration gives the same one."""
    return _template("alerts.yaml", of)


def board(of: Monitored) -> Json:
    """Return the board, as the JSON that Grafana imports; the same configuration gives the same one."""
    shown = _template("dashboard.yaml", of)
    # By what the board shows: importing it again replaces the old one in Grafana, and another host's has another id.
    uid = hashlib.sha256(f"{of.namespace} {'|'.join(of.sources)}".encode()).hexdigest()[:16]
    return {"uid": uid, **shown, "panels": [*_place(shown["panels"])]}


def _template(name: str, of: Monitored) -> Json:
    text = files("toolplug.cli.monitoring").joinpath(name).read_text("utf-8")
    return cast("Json", _fill(yaml.safe_load(text), of, ""))


def _fill(value: Value, of: Monitored, source: str) -> Value:
    """Return the value with words in place of placeholders, and without items whose `when` is not configured."""
    if isinstance(value, dict):
        return {key: _fill(item, of, source) for key, item in value.items() if key not in ("when", "each")}
    if isinstance(value, list):
        found: list[Value] = []
        for item in value:
            keys = item if isinstance(item, dict) else {}
            if "when" not in keys or getattr(of, str(keys["when"])):
                found += [_fill(item, of, each) for each in (of.sources if "each" in keys else [source])]
        return found
    return _PLACEHOLDER.sub(lambda found: _word(found[1], of, source), value) if isinstance(value, str) else value


def _word(name: str, of: Monitored, source: str) -> str:
    """Return a field of `of`, as a regular expression of PromQL if it has several values, or what is repeated for."""
    if name == "source":
        return source
    if name == "title":
        return f"Server {source[4:]}" if source.startswith("mcp:") else f"Provider {source}"
    word: object = getattr(of, name)
    return word if isinstance(word, str) else "|".join(cast("list[str]", word))


def _place(rows: list[Json]) -> Iterator[Json]:
    """Yield the rows and their panels with their places: eight stats or three graphs next to one another."""
    at, number = 0, 0
    for row in rows:
        number += 1
        head: Json = {"id": number, "type": "row", "title": row["title"], "collapsed": "collapsed" in row, "panels": []}
        head["gridPos"] = {"x": 0, "y": at, "w": _WIDTH, "h": 1}
        placed: list[Json] = []
        x, y, lowest = 0, at + 1, at + 1
        for panel in row["panels"]:
            width, height = (3, 4) if panel.get("type") == "stat" else (8, 8)
            if x + width > _WIDTH:
                x, y = 0, lowest
            number += 1
            placed.append({**_panel(panel, number), "gridPos": {"x": x, "y": y, "w": width, "h": height}})
            x, lowest = x + width, y + height
        if row.get("collapsed"):
            yield {**head, "panels": placed}
            at += 1
        else:
            yield head
            yield from placed
            at = lowest


def _panel(panel: Json, number: int) -> Json:
    """Return the panel in Grafana's shape, without its place."""
    unit = panel.pop("unit", "short")
    targets = [
        {
            # Grafana names the queries of a panel A, B, C.
            "refId": chr(ord("A") + index),
            "expr": target["expr"],
            "legendFormat": target.get("legendFormat", "__auto"),
            "datasource": _DATASOURCE,
        }
        for index, target in enumerate(panel.pop("targets"))
    ]
    return {
        "id": number,
        "type": panel.pop("type", "timeseries"),
        "title": panel.pop("title"),
        "datasource": _DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        **panel,
    }
