"""Paths with parameters, found by what stands at their other places."""

from __future__ import annotations

import pytest

from toolplug.http.routing import PathTemplates

TEMPLATES = PathTemplates(["/a/{b}", "/a/{b}/c", "/a/{b}/c/{d}", "/a/{b}/{e}", "/a/fixed/{e}"])


@pytest.mark.parametrize(
    ("path", "template", "params"),
    [
        ("/a/1", "/a/{b}", {"b": "1"}),
        ("/a/1/c", "/a/{b}/c", {"b": "1"}),
        ("/a/1/c/2", "/a/{b}/c/{d}", {"b": "1", "d": "2"}),
        ("/a/1/x", "/a/{b}/{e}", {"b": "1", "e": "x"}),
        ("/a/{b}/c", "/a/{b}/c", {"b": "{b}"}),
    ],
)
def test_a_path_is_found_with_its_parameters(path: str, template: str, params: dict[str, str]) -> None:
    assert TEMPLATES.find(path) == (template, params)


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/", "/b/1", "/a//c", "/a/1/c/", "/a/1/c/2/3", "a/1"])
def test_a_path_that_no_template_has_is_not_found(path: str) -> None:
    assert TEMPLATES.find(path) is None


def test_of_two_templates_the_one_whose_shape_came_first_is_found() -> None:
    assert TEMPLATES.find("/a/fixed/2") == ("/a/{b}/{e}", {"b": "fixed", "e": "2"})
