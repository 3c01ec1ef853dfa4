"""Which values are kept out of messages."""

from __future__ import annotations

import pytest

from toolplug.config.masking import holds_credentials, looks_secret, mask_secrets
from toolplug.config.yaml_tree import KeyPath

pytestmark = pytest.mark.requirement("C-2-secrets-hidden")


@pytest.mark.parametrize(
    "path",
    [
        ("key",),
        ("api_key",),
        ("apiKey",),
        ("APIKey",),
        ("X-API-Key",),
        ("client_secret",),
        ("token",),
        ("password",),
        ("keys", 0),
        ("mcp", "env", "LEVEL"),
        ("mcp", "headers", "X-Tenant"),
        ("Authorization",),
        ("credentials", "user"),
    ],
)
def test_a_key_of_a_secret_is_recognised(path: KeyPath) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize("path", [(), (0,), ("url",), ("monkey",), ("keyboard",), ("api_keys", 0, "subject"), ("env",)])
def test_other_keys_are_shown(path: KeyPath) -> None:
    assert not looks_secret(path)


def test_an_address_with_a_password_is_recognised() -> None:
    assert [holds_credentials(text) for text in ("redis://:p@h", "http://h/", "a@b", "user@h//x")] == [
        True,
        False,
        False,
        False,
    ]


def test_longer_secrets_are_masked_first_and_short_ones_as_words_only() -> None:
    assert mask_secrets("abcdef abcd a=1, 11, é\\n", ["abcd", "abcdef", "1", "", "é\n"]) == "*** *** a=***, 11, ***"
