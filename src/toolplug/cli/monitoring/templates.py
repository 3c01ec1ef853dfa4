"""The Grafana board and the Prometheus alert rules of a configuration, from `dashboard.yaml` and `alerts.yaml`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, cast

import yaml

from toolplug.cli.monitoring.monitored import Monitored
from toolplug.config.yaml_tree import Value

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
