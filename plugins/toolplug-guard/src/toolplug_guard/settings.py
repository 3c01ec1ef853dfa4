"""The settings under `providers.guard`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug_guard.patterns import KINDS, SECRETS, compile_pattern


def _valid(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": str(error)}) from None
    return pattern


def _finds_text(pattern: str) -> str:
    if compile_pattern(pattern).search(b"") is not None:
        raise PydanticCustomError("pattern", "{pattern} matches the empty text", {"pattern": repr(pattern)})
    return pattern


_Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
_Pattern = Annotated[str, AfterValidator(_valid)]
_Glob = Annotated[str, Field(min_length=1, description="a tool's name, source.name, or a glob such as shell_*")]
_Mask = Annotated[tuple[str, ...], Field(strict=False, description="kinds of text that are replaced in results")]
_Block = Annotated[tuple[str, ...], Field(strict=False, description="kinds of text for which a result is withheld")]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ToolKinds(_Settings):
    """The kinds that count for some tools, in place of those for all tools."""

    tool: _Glob
    mask: _Mask = ()
    block: _Block = ()


class Rule(_Settings):
    """A rule that refuses calls: those of these tools in whose arguments the pattern is found."""

    tool: _Glob
    argument: Annotated[
        str | None,
        Field(min_length=1, description="its name, or a JSON pointer such as /options/path; none: all of them"),
    ] = None
    pattern: Annotated[
        _Pattern | None, Field(description="regular expression, searched in each text of the argument; none: any call")
    ] = None
    reason: Annotated[str, Field(min_length=1, max_length=500, description="what the model is told")]
    watch: Annotated[
        bool, Field(description="let the calls pass, and only say in the audit log and metrics that it would refuse")
    ] = False

    @model_validator(mode="after")
    def _has_a_pattern_for_its_argument(self) -> Self:
        if self.argument is not None and self.pattern is None:
            raise PydanticCustomError("no_pattern", "argument needs a pattern to look for in it")
        return self


class Settings(_Settings):
    """Everything has a default: without any settings, secrets are masked in the results of all tools."""

    mask: _Mask = SECRETS
    block: _Block = ()
    patterns: Annotated[
        dict[_Name, Annotated[_Pattern, AfterValidator(_finds_text)]],
        Field(description="kinds of your own: a regular expression each, whose first group is what is masked"),
    ] = {}
    replacement: Annotated[
        str, Field(max_length=200, description="the text in place of a finding; {kind} is replaced by its kind")
    ] = "[masked: {kind}]"
    overrides: Annotated[
        tuple[ToolKinds, ...], Field(strict=False, description="other kinds for some tools; the first that fits counts")
    ] = ()
    rules: Annotated[tuple[Rule, ...], Field(strict=False, description="which calls are refused, and why")] = ()

    @model_validator(mode="after")
    def _names_known_kinds(self) -> Self:
        taken = [name for name in self.patterns if name in KINDS]
        if taken:
            raise PydanticCustomError("kind", "patterns: {name} is a built-in kind", {"name": repr(taken[0])})
        used = [name for kinds in (self, *self.overrides) for name in (*kinds.mask, *kinds.block)]
        known = [*KINDS, *self.patterns]
        for name in used:
            if name not in known:
                raise PydanticCustomError("kind", "{why}", {"why": _unknown(name, known)})
        for name in self.patterns:
            if name not in used:
                message = "patterns: {name} is not used; name it in mask or block"
                raise PydanticCustomError("kind", message, {"name": repr(name)})
        return self


def _unknown(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(known), 1)
    return f"unknown kind {name!r}; " + (f"nearest: {nearest[0]!r}" if nearest else f"known: {', '.join(known)}")
