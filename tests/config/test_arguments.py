"""Secrets among the arguments of a command are known by what they are called."""

from __future__ import annotations

import pytest

from toolplug.config.masking import named_arguments, secrets_in

pytestmark = pytest.mark.requirement("H-trust-no-leak")


@pytest.mark.parametrize(
    ("args", "secrets"),
    [
        (("--api-key", "abc"), ["abc"]),
        (("--token=abc=",), ["abc="]),
        (("--token", "abc=def"), ["abc=def"]),
        (("--password", "-abc"), ["-abc"]),
        (("-e", "API_TOKEN=abc"), ["abc"]),
        (("--header", "Authorization: Bearer abc"), ["Bearer abc", "abc"]),
        (("--header=Authorization: Bearer abc",), ["Bearer abc", "abc"]),
        (("postgresql://me:a%2Fb@db/x",), ["a%2Fb", "a/b"]),
        (("DATABASE_URL=redis://:abc@db",), ["abc"]),
        (("--no-auth", "--fast"), []),
        (("https://docs.example:443/@scope", "img:1", "N=1", "C:\\me", "", "--", "=x", "-y"), []),
    ],
)
def test_what_is_called_like_a_secret_is_one(args: tuple[str, ...], secrets: list[str]) -> None:
    assert list(dict.fromkeys(secrets_in(args))) == secrets
    assert [part.before + part.value for part in named_arguments(args)] == list(args)
