"""Figures that a test measures, printed after the run; they come from the workers too.

A test notes one with pytest's `record_property(FIGURE, "longest loop callback 12.3 ms")`.
"""

from __future__ import annotations

import pytest

FIGURE = "figure"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of every test that has ended, the failed ones among them."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    figures = [text for report in reports for name, text in report.user_properties if name == FIGURE]
    if figures:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.write_line(str(text))
