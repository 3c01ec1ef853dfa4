"""The settings of a provider of the type `openapi`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import httpx2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

METHODS = ("get", "put", "post", "delete", "patch")
"""The methods whose operations become tools; the others have no answer that a model could use."""


def _web_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535 or "{" in text:
        raise PydanticCustomError("web_url", "should be a URL such as https://api.example/v1")
    if url.userinfo or url.fragment:
        raise PydanticCustomError("bare_url", "should have no user and no fragment; secrets go to credentials")
    return url


def bare_web_url(text: str) -> str:
    """Return the URL without a slash at its end. Raises `ValueError` unless it is http or https, without a query."""
    url = _web_url(text)
    if url.query:
        raise PydanticCustomError("bare_url", "should have no query; secrets go to credentials")
    return str(url).rstrip("/")


def _path_or_url(text: str) -> str:
    if text.startswith("file:"):
        raise PydanticCustomError("document", "should be a path or an http or https URL; write a file's path as it is")
    return str(_web_url(text)) if "://" in text else text


WebUrl = Annotated[str, AfterValidator(bare_web_url)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Pointer = Annotated[str, Field(pattern=r"^(/[^/]*)+$", max_length=500)]


class Model(BaseModel):
    """A strict, frozen model of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class OperationFilter(Model):
    """Operations that have all of this; in `operation` and `path` the characters `*` and `?` stand for others."""

    operation: Annotated[str | None, Field(min_length=1, description="an operationId, or a glob such as get*")] = None
    tag: Annotated[str | None, Field(min_length=1, description="one of the operation's tags")] = None
    method: Annotated[Literal["GET", "PUT", "POST", "DELETE", "PATCH"] | None, Field(description="the HTTP method")] = (
        None
    )
    path: Annotated[
        str | None, Field(pattern="^/", description="the path of the document, or a glob such as /admin/*")
    ] = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise PydanticCustomError("no_filter", "needs operation, tag, method or path")
        return self


class SecurityScheme(BaseModel):
    """A Security Scheme Object of OpenAPI: where a credential goes (OpenAPI 3.1, section 4.8.27)."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    type: Annotated[
        Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"], Field(description="kind of the scheme")
    ]
    name: Annotated[str, Field(description="apiKey: of the header, query parameter or cookie")] = ""
    place: Annotated[Literal["header", "query", "cookie"] | None, Field(alias="in", description="apiKey: where")] = None
    scheme: Annotated[str, Field(description="http: basic or bearer")] = ""

    @property
    def target(self) -> tuple[str, str] | None:
        """Place and name of the field that carries the credential; None for a scheme that is not supported."""
        if self.type == "apiKey":
            return (self.place, self.name) if self.place and self.name else None
        if self.type in ("oauth2", "openIdConnect") or self.scheme.lower() in ("basic", "bearer"):
            return ("header", "Authorization")
        return None


class Credential(Model):
    """One credential: the provider's own (`value`) or the caller's (`forward`)."""

    value: Annotated[SecretStr | None, Field(description="the provider's own key, token or password")] = None
    username: Annotated[str | None, Field(description="for a basic scheme: whose password `value` is")] = None
    forward: Annotated[
        str | None,
        Field(
            pattern="^[a-z0-9][a-z0-9-]{0,63}$",
            description="the caller's own: what it sends as X-Toolplug-Credential-<this name>",
        ),
    ] = None
    scheme: Annotated[
        SecurityScheme | None, Field(description="where it goes, if the document does not declare the scheme")
    ] = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.value is None) == (self.forward is None):
            raise PydanticCustomError("one_source", "needs either value or forward, not both")
        return self


class Settings(Model):
    """The document, the operations that become tools, and how they are called."""

    document: Annotated[
        str,
        Field(min_length=1, description="path or URL of an OpenAPI document 3.0 or 3.1, in JSON or YAML"),
        AfterValidator(_path_or_url),
    ]
    document_headers: Annotated[
        dict[HeaderName, SecretStr],
        Field(description="what the URL of the document is asked with, such as Authorization; calls are not"),
    ] = {}
    base_url: Annotated[
        WebUrl | None, Field(description="where the operations are; none: the document's first server")
    ] = None
    include: Annotated[
        tuple[OperationFilter, ...], Field(strict=False, description="only these operations; none: all of them")
    ] = ()
    exclude: Annotated[
        tuple[OperationFilter, ...], Field(strict=False, description="not these, even if they are included")
    ] = ()
    rename: Annotated[
        dict[str, ToolName], Field(description="operationId, or METHOD /path, to the name of the tool")
    ] = {}
    credentials: Annotated[
        dict[str, Credential], Field(description="name of a security scheme of the document to its credential")
    ] = {}
    trim: Annotated[
        dict[str, list[Pointer]],
        Field(
            description="operationId, or METHOD /path, to the parts of its answer that are kept: JSON pointers, with * "
            "for every item or key",
        ),
    ] = {}

    def without_secrets(self) -> Settings:
        """Return the settings for the process that reads the document: without values of credentials and headers."""
        hidden = {name: Credential(forward="caller", scheme=each.scheme) for name, each in self.credentials.items()}
        return self.model_copy(update={"credentials": hidden, "document_headers": {}})
