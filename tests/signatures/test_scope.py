"""What names mean in annotations that are text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from toolplug.errors import InvalidDefinition
from toolplug.providers.authoring import bound_tools, check_declared, tool
from toolplug.providers.provider import FunctionProvider

if TYPE_CHECKING:
    from decimal import Decimal

    from toolplug.catalog.call import CallContext


class Forward(FunctionProvider):
    @tool
    def keep(self, note: Note) -> Note:
        return note


class Chapter(BaseModel):
    notes: list[Note]


class Nested(FunctionProvider):
    @tool
    def keep(self, chapter: Chapter) -> None: ...


class Note(BaseModel):
    text: str


NOTE = {"properties": {"text": {"type": "string"}}, "required": ["text"], "type": "object"}


def properties(provider: FunctionProvider) -> dict[str, Any]:
    (bound,) = bound_tools(provider)
    return bound.definition.parameters.value["properties"]  # type: ignore[return-value]


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_a_name_may_follow_in_the_module() -> None:
    check_declared(Forward)
    check_declared(Nested)
    assert properties(Forward()) == {"note": NOTE}
    assert properties(Nested()) == {
        "chapter": {**NOTE, "properties": {"notes": {"type": "array", "items": NOTE}}, "required": ["notes"]}
    }


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_a_name_may_be_local_to_the_function_that_makes_the_class() -> None:
    class Local(BaseModel):
        text: str

    class Provider(FunctionProvider):
        @tool
        def keep(self, note: Local) -> None: ...

    assert properties(Provider()) == {"note": NOTE}


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_a_name_may_be_one_of_the_class_itself_or_of_a_class_around_it() -> None:
    class Outer:
        class Around(BaseModel):
            text: str

        class Provider(FunctionProvider):
            class Inside(BaseModel):
                text: str

            @tool
            def keep(self, inside: Inside, around: Around) -> None: ...  # noqa: F821  the class around it has it

    assert list(properties(Outer.Provider())) == ["inside", "around"]


@pytest.mark.requirement("C-12-tool-annotations-resolved")
def test_a_base_class_keeps_the_meaning_of_its_own_place() -> None:
    def made() -> type[FunctionProvider]:
        class Local(BaseModel):
            text: str

        class Base(FunctionProvider):
            @tool
            def keep(self, note: Local) -> None: ...

        return Base

    class Derived(made()):  # type: ignore[misc]
        Local = int

    assert properties(Derived()) == {"note": NOTE}


def test_a_tool_called_like_a_type_does_not_hide_the_type() -> None:
    class Provider(FunctionProvider):
        @tool
        def list(self, names: list[str]) -> list[str]:
            return names

    assert properties(Provider()) == {"names": {"type": "array", "items": {"type": "string"}}}


def test_the_context_needs_no_import_at_run_time() -> None:
    class Provider(FunctionProvider):
        @tool
        def keep(self, text: str, context: CallContext | None = None) -> None: ...

    assert list(properties(Provider())) == ["text"]


def test_a_class_between_may_have_its_own_init_subclass() -> None:
    class Local(BaseModel):
        text: str

    class Between(FunctionProvider):
        def __init_subclass__(cls, **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)

    class Provider(Between):
        @tool
        def keep(self, note: Local) -> None: ...

    assert list(properties(Provider())) == ["note"]


@pytest.mark.requirement("C-12-tool-unresolved")
def test_a_name_that_means_nothing_is_refused_with_class_method_and_parameter() -> None:
    class Provider(FunctionProvider):
        @tool
        def pay(self, text: str, price: Decimal) -> None: ...

    with pytest.raises(InvalidDefinition) as raised:
        check_declared(Provider)
    assert "Provider.pay: the annotation 'Decimal' of parameter 'price' cannot be resolved" in str(raised.value)
    assert "import or define the name in the module" in str(raised.value)
    with pytest.raises(InvalidDefinition, match="'price'"):
        bound_tools(Provider())


@pytest.mark.requirement("C-12-tool-unresolved")
def test_a_name_that_means_nothing_within_a_model_is_refused_alike() -> None:
    class Hollow(BaseModel):
        price: Decimal

    class Provider(FunctionProvider):
        @tool
        def pay(self, hollow: Hollow) -> None: ...

    with pytest.raises(InvalidDefinition, match=r"Provider\.pay: parameter 'hollow' of type .*Hollow"):
        check_declared(Provider)


def test_an_annotation_that_is_an_object_is_refused_alike() -> None:
    with pytest.raises(InvalidDefinition, match=r"Provider\.pay: parameter 'price' of type <object .* no JSON Schema"):

        class Provider(FunctionProvider):
            @tool
            def pay(self, price: object()) -> None: ...  # type: ignore[valid-type]


class Odd:
    """An annotation whose attributes cannot be read."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError(name)


def test_an_annotation_that_raises_is_refused_alike_and_a_result_has_no_schema_then() -> None:
    with pytest.raises(InvalidDefinition, match=r"Provider\.pay: parameter 'price' of type <.*Odd object .* no JSON"):

        class Provider(FunctionProvider):
            @tool
            def pay(self, price: Odd()) -> None: ...  # type: ignore[valid-type]

    class Other(FunctionProvider):
        @tool
        def pay(self) -> Odd(): ...  # type: ignore[valid-type]

    assert [definition.output_schema for definition in check_declared(Other)] == [None]


@pytest.mark.requirement("C-12-tool-unresolved")
def test_an_annotation_that_is_no_expression_is_refused_alike() -> None:
    def pay(self: object, price: object) -> None: ...

    pay.__annotations__["price"] = "1 +"
    provider = type("Provider", (FunctionProvider,), {"pay": tool(pay)})
    with pytest.raises(InvalidDefinition, match=r"Provider\.pay: the annotation '1 \+' of parameter 'price'"):
        check_declared(provider)
