"""What a `{"type": "file_search"}` entry of a request may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from toolplug_file_search.search.filters import Filter
from toolplug_file_search.search.ranking import Weights

MAX_RESULTS = 50
MAX_QUERY = 10_000
"""Characters of a query, or of the queries of a list together."""
MAX_STORES = 50
StoreId = Annotated[str, Field(max_length=64)]


class HybridWeights(BaseModel):
    """How much the ranks by meaning and by words count when they are fused."""

    model_config = ConfigDict(extra="forbid")

    embedding_weight: Annotated[float, Field(ge=0, le=100)]
    text_weight: Annotated[float, Field(ge=0, le=100)]


class RankingOptions(BaseModel):
    """How results are ranked; there is one ranker, by whatever name."""

    model_config = ConfigDict(extra="forbid")

    ranker: Literal["none", "auto", "default-2024-11-15"] = "auto"
    score_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    hybrid_search: HybridWeights | None = None


class StubOptions(BaseModel):
    """OpenAI's options of the built-in tool."""

    model_config = ConfigDict(extra="forbid")

    vector_store_ids: Annotated[list[StoreId] | None, Field(min_length=1, max_length=MAX_STORES)] = None
    max_num_results: Annotated[int | None, Field(ge=1, le=MAX_RESULTS)] = None
    ranking_options: RankingOptions = RankingOptions()
    filters: Filter | None = None


class Narrowed(NamedTuple):
    """What a call may look through, and how: a call narrows what its stub allows, and never widens it."""

    stores: Sequence[str] | None
    limit: int
    at_least: float
    weights: Weights
    reranked: bool
    filters: Filter | None


def narrow(
    options: Mapping[str, object], *, stores: Sequence[str] | None, limit: int | None, default_limit: int
) -> Narrowed:
    """Bring together the stub's options, which the host has validated, and the call's arguments."""
    said = StubOptions.model_validate(dict(options))
    allowed = said.vector_store_ids
    both = stores if allowed is None else allowed if stores is None else [store for store in stores if store in allowed]
    most = said.max_num_results or MAX_RESULTS
    wanted = limit or said.max_num_results or default_limit
    return rank(both, min(wanted, most), said.ranking_options, said.filters)


def rank(stores: Sequence[str] | None, limit: int, ranking: RankingOptions, filters: Filter | None) -> Narrowed:
    """A search with these options."""
    hybrid = ranking.hybrid_search
    return Narrowed(
        stores=stores,
        limit=limit,
        at_least=ranking.score_threshold,
        weights=Weights(hybrid.text_weight, hybrid.embedding_weight) if hybrid else Weights(),
        reranked=ranking.ranker != "none",
        filters=filters,
    )
