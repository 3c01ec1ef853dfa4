"""Secrets in files of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator

from toolplug.config.document import Section, expand, parse_document
from toolplug.config.problems import MAX_SECRET_BYTES, problems_of, read_secret_files


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Key(Strict):
    key: SecretStr
    subject: str = ""


class Config(Strict):
    api_key: SecretStr | None = None
    name: str | None = None
    cert: SecretStr | None = None
    cert_file: str | None = None
    keys: list[Key] = []
    named: dict[str, Key] = {}


def filled(folder: Path, text: str, **environ: str) -> Section:
    document = parse_document(text.encode(), file=str(folder / "p.yaml"))
    return read_secret_files(expand(document, (), environ), Config)


def refusal(folder: Path, text: str, **environ: str) -> list[str]:
    section = filled(folder, text, **environ)
    problems = [*section.problems]
    try:
        Config.model_validate(section.value)
    except ValidationError as error:
        problems += problems_of(error, section=section, model=Config)
    return [str(problem).removeprefix(f"{folder}/") for problem in problems]


@pytest.mark.requirement("C-2-key-file")
def test_the_file_stands_for_the_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"hunter2\r\n")
    section = filled(tmp_path, "api_key_file: key\nname: x\n")

    assert section.value == {"api_key": "hunter2", "name": "x"}
    assert section.withheld == {"hunter2"}
    assert section.problems == ()


def test_secrets_are_found_in_lists_and_mappings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a\n")
    section = filled(
        tmp_path, "keys: [{key_file: key, subject: alice}]\nnamed: {x: {key_file: '${NAME}'}}\n", NAME="key"
    )

    assert section.value == {"keys": [{"key": "a", "subject": "alice"}], "named": {"x": {"key": "a"}}}


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a")

    assert filled(Path("/elsewhere"), f"api_key_file: {tmp_path / 'key'}\n").value == {"api_key": "a"}


@pytest.mark.requirement("C-2-key-file")
def test_a_key_of_the_model_is_left_alone(tmp_path: Path) -> None:
    assert filled(tmp_path, "cert_file: none\n").value == {"cert_file": "none"}


@pytest.mark.requirement("C-2-key-file-only-secrets")
def test_only_secret_fields_can_stand_in_files(tmp_path: Path) -> None:
    assert refusal(tmp_path, "name_file: x\n") == [
        "p.yaml:1:1: name_file: unknown key 'name_file' (nearest: 'cert_file')"
    ]


def test_a_secret_and_its_file_cannot_both_be_given(tmp_path: Path) -> None:
    assert refusal(tmp_path, "api_key: x\napi_key_file: y\n") == [
        "p.yaml:2:15: api_key_file: both 'api_key' and 'api_key_file' are given (keep one of them)"
    ]


@pytest.mark.parametrize("name", ["3", "[a]", "''", '"\\0"', ""])
def test_a_file_must_be_named(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, f"api_key_file: {name}\n")[0].endswith(": api_key_file: should be the path of a file")


def test_a_file_that_cannot_be_used_is_one_problem(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_bytes(b"\n\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    names = ["none", "binary", "empty", "folder", "pipe"]

    assert refusal(tmp_path, "keys:\n" + "".join(f"- key_file: {name}\n" for name in names)) == [
        "p.yaml:2:13: keys[0].key_file: the file cannot be read: No such file or directory",
        "p.yaml:3:13: keys[1].key_file: the file is not UTF-8 text",
        "p.yaml:4:13: keys[2].key_file: the file is empty",
        "p.yaml:5:13: keys[3].key_file: is not a regular file",
        "p.yaml:6:13: keys[4].key_file: is not a regular file",
    ]


def test_64_kib_are_accepted_and_one_byte_more_is_not(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * MAX_SECRET_BYTES)
    assert filled(tmp_path, "api_key_file: key\n").value == {"api_key": "x" * MAX_SECRET_BYTES}

    (tmp_path / "key").write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    assert refusal(tmp_path, "api_key_file: key\n") == ["p.yaml:1:15: api_key_file: the file is larger than 64 KiB"]


def test_an_unset_variable_in_a_file_name_is_reported_once(tmp_path: Path) -> None:
    assert refusal(tmp_path, "api_key_file: ${UNSET}\n") == [
        "p.yaml:1:15: api_key_file: the environment variable 'UNSET' is not set (set it, or write ${UNSET:-default})"
    ]


class Short(Strict):
    api_key: SecretStr
    limit: int = 0

    @field_validator("api_key")
    @classmethod
    def _refuse(cls, value: SecretStr) -> SecretStr:
        raise ValueError(f"{value.get_secret_value()} is too short")


def test_a_problem_of_a_secret_points_to_the_key_that_named_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2")
    document = parse_document(b"limit: 1\napi_key_file: key\n", file=str(tmp_path / "p.yaml"))
    section = read_secret_files(expand(document, (), {}), Short)

    with pytest.raises(ValidationError) as refused:
        Short.model_validate(section.value)

    assert [str(problem) for problem in problems_of(refused.value, section=section, model=Short)] == [
        f"{tmp_path / 'p.yaml'}:2:15: api_key_file: is not valid (the value is not shown)"
    ]
    assert str(section.problem(("api_key",), code="x", message="is wrong")).endswith(
        "p.yaml:2:15: api_key_file: is wrong"
    )
