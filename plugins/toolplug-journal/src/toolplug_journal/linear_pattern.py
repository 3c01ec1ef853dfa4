"""Regular expressions whose search takes time linear in the text, whatever the expression."""

from __future__ import annotations

from pydantic_core import SchemaError, SchemaValidator, core_schema


class LinearPattern:
    """A pattern of the `regex` crate, which pydantic brings along: no look-around and no back-references.

    Raises `ValueError` for what it does not take.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        except SchemaError as error:
            reason = str(error).strip().splitlines()[-1].removeprefix("error: ")
            raise ValueError(f"{pattern!r} is no pattern of linear time: {reason}") from None

    def found_in(self, text: str) -> bool:
        """Does it match anywhere in the text. Raises `UnicodeEncodeError` for what is no Unicode text."""
        text.encode()
        return self._validator.isinstance_python(text)
