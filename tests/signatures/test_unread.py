"""Annotations that Python has not read: text where authors ask for it, and code since 3.14 where they do not."""

from __future__ import annotations

import sys

import pytest

from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import bound_tools, check_declared, tool
from toolplug.providers.plugins.shapes import hooks_of
from toolplug.providers.provider import FunctionProvider, build_provider

UNREAD = 0 if sys.version_info >= (3, 14) else annotations.compiler_flag


def provider_of(module: str) -> type[FunctionProvider]:
    names: dict[str, object] = {"FunctionProvider": FunctionProvider, "tool": tool, "__name__": "notes"}
    exec(compile(module, "notes.py", "exec", flags=UNREAD, dont_inherit=True), names)
    return names["Notes"]  # type: ignore[return-value]


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_hooks_and_constructor_may_name_what_only_a_type_checker_imports() -> None:
    provider = provider_of("""
class Notes(FunctionProvider):
    def __init__(self, config: Settings) -> None:
        self.given = config

    async def start(self, site: ProviderContext) -> None: ...
""")
    assert hooks_of(provider).problems == ()
    assert vars(build_provider(provider, "notes", "settings"))["given"] == "settings"


def test_a_hook_that_does_not_fit_is_shown_with_its_unread_annotations() -> None:
    provider = provider_of("""
class Notes(FunctionProvider):
    async def start(self, site: ProviderContext, more: int) -> None: ...
""")
    (problem,) = hooks_of(provider).problems
    assert problem.replace("'", "").startswith(
        "Notes.start(self, site: ProviderContext, more: int) -> None takes more, and the arguments"
    )


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_a_tool_may_name_what_follows_and_what_only_a_type_checker_imports() -> None:
    provider = provider_of("""
class Notes(FunctionProvider):
    @tool
    def keep(self, note: list[Note], context: CallContext | None) -> Kept: ...

Note = str
""")
    check_declared(provider)
    (bound,) = bound_tools(provider())
    assert (bound.wants_context, bound.definition.output_schema) == (True, None)
    assert bound.definition.parameters.value["properties"] == {"note": {"type": "array", "items": {"type": "string"}}}


@pytest.mark.requirement("C-12-tool-unresolved")
@pytest.mark.parametrize("written", ["Price", "Price | None"])
def test_an_annotation_that_means_nothing_is_told_as_it_is_written(written: str) -> None:
    provider = provider_of(f"""
class Notes(FunctionProvider):
    @tool
    def pay(self, price: {written}) -> None: ...
""")
    with pytest.raises(InvalidDefinition) as raised:
        check_declared(provider)
    assert f"Notes.pay: the annotation {written!r} of parameter 'price' cannot be resolved" in str(raised.value)
