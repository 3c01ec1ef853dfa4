"""What a model refuses becomes problems with a place, plain words and the nearest right thing, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
    Secret,
    SecretStr,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

from toolplug.config.document import Section, expand, parse_document
from toolplug.config.problems import NOTHING, Shapes, problems_of, shapes_of
from toolplug.config.units import Duration
from toolplug.config.yaml_tree import KeyPath


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(Strict):
    timeout: Duration = 60.0
    queue: int = Field(0, ge=0, lt=100)


class Rule(Strict):
    policy: Literal["allow", "ask", "deny"] = "allow"
    limits: Limits = Limits()


class Backend(StrEnum):
    SEARXNG = "searxng"
    DDGS = "ddgs"


class Hosts(RootModel[dict[str, Limits]]):
    pass


class Web(Strict):
    enabled: StrictBool = False
    backend: Backend = Backend.SEARXNG
    url: HttpUrl | None = None
    api_key: SecretStr | None = None
    passes: Secret[int] | None = None
    max_results: int = 5
    ratio: float = 0.5
    name: str = Field("web", min_length=2, max_length=4, pattern="^[a-z]+$")
    limits: Limits = Limits()
    tools: dict[str, Literal["allow", "ask", "deny"] | Rule] = {}
    ports: list[int] = Field(default=[], max_length=3)
    pair: tuple[int, Limits] | None = None
    hosts: Hosts = Hosts({})
    language: str = Field("en", validation_alias=AliasChoices("lang", AliasPath("locale", 0)))
    checked: str = "ok"
    address: str = Field("http://h", pattern="^https?://")
    life: Annotated[Duration, Field(ge=1, le=604_800)] = 60.0

    @field_validator("checked")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value != "ok":
            raise ValueError(f"{value!r} is\nnot ok")
        return value


def section_of(text: str, path: KeyPath = (), **environ: str) -> Section:
    section = expand(parse_document(text.encode(), file="p.yaml"), path, environ)
    assert section.problems == ()
    return section


def refusal(
    text: str, model: type[BaseModel] = Web, also_known: Mapping[str, Shapes] = NOTHING, **environ: str
) -> list[str]:
    section = section_of(text, **environ)
    with pytest.raises(ValidationError) as refused:
        model.model_validate(section.value)
    return [str(problem) for problem in problems_of(refused.value, section=section, model=model, also_known=also_known)]


@pytest.mark.requirement("H-configuration-enabled-text", "C-2-wrong-value")
def test_text_is_no_boolean() -> None:
    assert refusal('enabled: "false"\n') == [
        "p.yaml:1:10: enabled: should be true or false (without quotes), not 'false'"
    ]
    assert refusal("enabled: yes\n") == ["p.yaml:1:10: enabled: should be true or false, not 'yes'"]


@pytest.mark.requirement("C-2-wrong-value")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_results: many", "should be a whole number, not 'many'"),
        ("max_results: 1.5", "should be a whole number, not 1.5"),
        ("max_results: [1]", "should be a whole number, not a list"),
        ("max_results:", "should be a whole number, not null"),
        ("ratio: x", "should be a number, not 'x'"),
        ("name: 12", "should be text, not 12 (write it in quotes)"),
        ("name: true", "should be text, not true (write it in quotes)"),
        ("name: x", "should be text of at least 2 characters, not 'x'"),
        ("name: abcde", "should be text of at most 4 characters, not 'abcde'"),
        ("name: ABC", "should be text that matches ^[a-z]+$, not 'ABC'"),
        ("life: 200h", "should be at most 168h, not '200h'"),
        ("life: 0s", "should be at least 1s, not '0s'"),
        ("life: 700000", "should be at most 604800, not 700000"),
        ("address: h:80", "should be a URL that begins with http:// or https://, not 'h:80'"),
        ("name: {a: 1}", "should be text, not a mapping"),
        ("backend: searxg", "should be 'searxng' or 'ddgs', not 'searxg' (nearest: 'searxng')"),
        ("backend: zzz", "should be 'searxng' or 'ddgs', not 'zzz'"),
        ("url: 'not a url'", "should be a URL such as https://example.com/path, not 'not a url'"),
        ("url: ftp://h", "should be a URL that begins with 'http' or 'https', not 'ftp://h'"),
        ("limits: 3", "should be a mapping of keys, not 3"),
        ("ports: 1", "should be a list, not 1"),
        ("ports: [1, 2, 3, 4]", "should be 3 entries or fewer, not a list"),
        ("checked: wrong", "'wrong' is not ok"),
    ],
)
def test_a_wrong_value_is_told_what_would_be_right(line: str, message: str) -> None:
    key, _, value = line.partition(":")
    column = len(key) + (3 if value else 2)

    assert refusal(line + "\n") == [f"p.yaml:1:{column}: {key}: {message}"]


@pytest.mark.requirement("C-2-unknown-key", "C-2-problem-place", "H-configuration-unknown-keys")
def test_an_unknown_key_is_marked_itself_and_told_its_nearest() -> None:
    assert refusal("name: web\nmax_result: 3\nlimits:\n  timout: 3s\n") == [
        "p.yaml:2:1: max_result: unknown key 'max_result' (nearest: 'max_results')",
        "p.yaml:4:3: limits.timout: unknown key 'timout' (nearest: 'timeout')",
    ]


def test_an_unknown_key_that_resembles_nothing_is_told_the_known_ones() -> None:
    assert refusal("limits: {zzzz: 1}\n") == [
        "p.yaml:1:10: limits.zzzz: unknown key 'zzzz' (known: 'timeout', 'queue')"
    ]


def test_keys_beside_the_model_count_as_known_at_the_top_only() -> None:
    assert refusal("requird: true\nlimits: {requird: 1}\n", also_known={"required": ()}) == [
        "p.yaml:1:1: requird: unknown key 'requird' (nearest: 'required')",
        "p.yaml:2:10: limits.requird: unknown key 'requird' (known: 'timeout', 'queue')",
    ]


def test_a_key_of_one_section_below_is_said_to_belong_there() -> None:
    assert refusal("queue: 4\npolicy: ask\n", also_known={"offer": shapes_of(Rule)}) == [
        "p.yaml:1:1: queue: unknown key 'queue' (it belongs under 'limits')",
        "p.yaml:2:1: policy: unknown key 'policy' (it belongs under 'offer')",
    ]


def test_a_key_of_the_entries_of_a_mapping_is_said_to_belong_below_their_names() -> None:
    assert refusal("policy: ask\n", also_known={"tools": shapes_of(dict[str, Rule])}) == [
        "p.yaml:1:1: policy: unknown key 'policy' (it belongs under 'tools.NAME')",
    ]


def test_an_alias_is_a_known_key() -> None:
    assert refusal("langu: de\nlocal: de\n") == [
        "p.yaml:1:1: langu: unknown key 'langu' (nearest: 'lang')",
        "p.yaml:2:1: local: unknown key 'local' (nearest: 'locale')",
    ]


class ByName(Strict):
    model_config = ConfigDict(validate_by_name=True)
    inner_size: int = Field(1, alias="innerSize")


def test_a_field_that_may_be_given_by_name_is_known_by_name() -> None:
    assert refusal("inner_siz: 1\n", ByName) == [
        "p.yaml:1:1: inner_siz: unknown key 'inner_siz' (nearest: 'inner_size')"
    ]


class Needs(Strict):
    url: str
    parts: list[Limits] = []


def test_a_missing_key_is_marked_at_its_parent() -> None:
    section = section_of("providers:\n  web: {parts: []}\n", ("providers", "web"))
    with pytest.raises(ValidationError) as refused:
        Needs.model_validate(section.value)

    assert [str(problem) for problem in problems_of(refused.value, section=section, model=Needs)] == [
        "p.yaml:2:3: providers.web.url: the key 'url' is missing"
    ]


def test_problems_inside_lists_tuples_and_root_models_are_located() -> None:
    assert refusal("ports: [1, x]\npair: [1, {timout: 1}]\nhosts: {h: {timot: 1}}\n") == [
        "p.yaml:1:12: ports[1]: should be a whole number, not 'x'",
        "p.yaml:2:12: pair[1].timout: unknown key 'timout' (nearest: 'timeout')",
        "p.yaml:3:13: hosts.h.timot: unknown key 'timot' (nearest: 'timeout')",
    ]


def test_members_of_a_union_speak_together() -> None:
    assert refusal("tools:\n  a: alow\n  b: 3\n") == [
        "p.yaml:2:6: tools.a: should be 'allow', 'ask' or 'deny' or a mapping of keys, not 'alow' (nearest: 'allow')",
        "p.yaml:3:6: tools.b: should be 'allow', 'ask' or 'deny' or a mapping of keys, not 3",
    ]


def test_only_the_member_that_got_further_speaks() -> None:
    assert refusal("tools:\n  a: {polcy: ask, limits: {queue: -1}}\n") == [
        "p.yaml:2:7: tools.a.polcy: unknown key 'polcy' (nearest: 'policy')",
        "p.yaml:2:35: tools.a.limits.queue: should be at least 0, not -1",
    ]


Named = TypeAliasType("Named", Limits)


class Wrapped(Strict):
    named: Named = Limits()
    annotated: dict[str, Annotated[Limits, Field(description="limits")]] = {}
    anything: dict[str, object] = {}


def test_named_and_annotated_types_are_looked_through() -> None:
    assert refusal("named: {timout: 1}\nannotated: {a: {queu: 1}}\n", Wrapped) == [
        "p.yaml:1:9: named.timout: unknown key 'timout' (nearest: 'timeout')",
        "p.yaml:2:17: annotated.a.queu: unknown key 'queu' (nearest: 'queue')",
    ]


class File(Strict):
    kind: Literal["file"]
    path: str


class Http(Strict):
    kind: Literal["http"]
    base_url: str
    ratio: float = 1


class Source(Strict):
    source: Annotated[File | Http, Field(discriminator="kind")]
    either: File | Http | None = None


def test_a_tagged_union_names_its_tags() -> None:
    assert refusal("source: {kind: ftp}\n", Source) == [
        "p.yaml:1:9: source: should be a mapping whose key 'kind' is one of 'file', 'http', not a mapping"
    ]
    assert refusal("source: {path: x}\n", Source) == [
        "p.yaml:1:9: source: should be a mapping that has the key 'kind', not a mapping"
    ]


def test_an_unknown_key_in_one_member_of_a_union_is_compared_with_that_members_keys() -> None:
    assert refusal("source: {kind: http, base_url: x, pth: 1}\n", Source) == [
        "p.yaml:1:35: source.pth: unknown key 'pth' (known: 'kind', 'base_url', 'ratio')"
    ]


@pytest.mark.requirement("C-2-secrets-hidden")
@pytest.mark.parametrize(
    "text",
    [
        "api_key: 123456789\n",
        "passes: hunter2\n",
        "checked: ${SECRET}\n",
        "max_results: ${SECRET}\n",
        "ports: ['${SECRET}']\n",
        "name: x${SECRET}\n",
        "url: 'http//u:123456789@h/?://'\n",
    ],
)
def test_a_secret_is_not_in_any_message(text: str) -> None:
    [problem] = refusal(text, SECRET="hunter2")

    assert "hunter2" not in problem
    assert "123456789" not in problem


class Talkative(Strict):
    token: str = ""
    note: str = ""
    port: int = 0
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _talk(self) -> Talkative:
        raise ValueError(f"cannot use {self!r}, port {self.port}")


@pytest.mark.requirement("C-2-secrets-hidden")
def test_a_validators_own_text_is_shown_without_the_secrets_in_it() -> None:
    text = 'token: abcd\nnote: "${NOTE}"\nport: ${PORT}\nheaders: {Cookie: chocolate}\n'

    assert refusal(text, Talkative, NOTE='it\'s\n"so"', PORT="80") == [
        "p.yaml:1:1: cannot use Talkative(token='***', note='***', port=***, headers={'Cookie': '***'}), port ***"
    ]


class Listed(Strict):
    tokens: list[str] = []

    @model_validator(mode="after")
    def _talk(self) -> Listed:
        raise ValueError(f"cannot use {self.tokens}")


@pytest.mark.requirement("C-2-secrets-hidden")
def test_secrets_in_lists_are_masked_too() -> None:
    assert refusal("tokens: [abcd, efgh]\n", Listed) == ["p.yaml:1:1: cannot use ['***', '***']"]


class Silent(Strict):
    @model_validator(mode="after")
    def _fail(self) -> Silent:
        raise ValueError


def test_a_validator_without_words_is_still_a_problem() -> None:
    assert refusal("{}\n", Silent) == ["p.yaml:1:1: is not valid"]


class Long(Strict):
    text: str

    @field_validator("text")
    @classmethod
    def _fail(cls, value: str) -> str:
        raise ValueError("x" * 400)


def test_texts_of_others_are_cut() -> None:
    assert refusal("text: y\n", Long) == [f"p.yaml:1:7: text: {'x' * 299}…"]
    [problem] = refusal(f"max_results: {'y' * 200}\n")
    assert problem == f"p.yaml:1:14: max_results: should be a whole number, not '{'y' * 58}…"


def test_a_value_that_could_not_be_had_is_reported_once() -> None:
    section = expand(parse_document(b"name: ${UNSET}\nratio: x\n", file="p.yaml"), (), {})
    with pytest.raises(ValidationError) as refused:
        Web.model_validate(section.value)

    assert [problem.path for problem in section.problems] == ["name"]
    assert [problem.path for problem in problems_of(refused.value, section=section, model=Web)] == ["ratio"]


class Either(Strict):
    name: str | None = None
    address: str | None = None
    ports: tuple[int, ...] = Field((80,), min_length=1, strict=False)

    @model_validator(mode="after")
    def _refuse(self) -> Self:
        if (self.name is None) == (self.address is None):
            raise ValueError("must have name or address")
        return self


def test_a_mapping_is_not_blamed_for_a_value_that_could_not_be_had() -> None:
    section = expand(parse_document(b"name: ${UNSET}\n", file="p.yaml"), (), {})
    with pytest.raises(ValidationError) as refused:
        Either.model_validate(section.value)

    assert problems_of(refused.value, section=section, model=Either) == []
    assert refusal("ports: [1]\n", Either) == ["p.yaml:1:1: must have name or address"]


def test_a_list_is_not_blamed_for_being_short_of_what_is_wrong_in_it() -> None:
    assert refusal("ports: [x]\n", Either) == ["p.yaml:1:9: ports[0]: should be a whole number, not 'x'"]
    assert refusal("ports: []\n", Either) == ["p.yaml:1:8: ports: should be 1 or more entries, not an empty list"]


def test_problems_come_in_file_order() -> None:
    problems = refusal("ratio: x\nzzzz: 1\nname: 1\nenabled: 1\nlimits: {queue: x}\n")

    assert [problem.split(":")[1] for problem in problems] == ["1", "2", "3", "4", "5"]
