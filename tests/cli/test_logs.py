"""How log lines look."""

from __future__ import annotations

import json
import logging
import sys

from toolplug.cli.logs import HumanLines, JsonLines


def _record(message: str, *, failed: bool = False) -> logging.LogRecord:
    trace = None
    if failed:
        try:
            raise ValueError("no disk")
        except ValueError:
            trace = sys.exc_info()
    record = logging.LogRecord("toolplug.x", logging.ERROR, "file.py", 1, message, None, trace)
    record.created = 1_795_530_600.25
    return record


def test_a_json_line_is_one_line_whatever_the_message_holds() -> None:
    line = JsonLines().format(_record('two\nlines "quoted"', failed=True))
    read = json.loads(line)
    assert "\n" not in line
    assert (read["level"], read["logger"], read["message"]) == ("error", "toolplug.x", 'two\nlines "quoted"')
    assert "ValueError: no disk" in read["error"]
    assert read["ts"] == "2026-11-24T14:30:00.250Z"


def test_a_line_for_people_begins_with_the_time_and_the_level() -> None:
    assert HumanLines().format(_record("hello")) == "2026-11-24T14:30:00.250Z ERROR toolplug.x: hello"
