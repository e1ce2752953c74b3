"""What the transform's columns may be beside the target's, and what those that are new mean."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.names import Identifier

Text = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]


class NewColumn(Frozen):
    """What it means that a new column has no value."""

    null_means: Literal["unknown", "unavailable", "default"]
    """``unknown``: there is a value, and nobody knows it; ``unavailable``: there is none; ``default``: there is no NULL,
    since a default stands in its place."""
    because: Text | None = None
    """With ``default``, why the default is right where the value is not known; without it the plan warns."""


class SemanticChange(Frozen):
    """A boundary at which the same column means something else, and which no backfill makes consistent."""

    at: Annotated[str, Field(min_length=1, max_length=64)]
    note: Text


class SchemaSpec(Frozen):
    """The gate between the transform's columns and the target's, before the first partition is computed."""

    mode: Literal["freeze", "discard_columns"] = "freeze"
    """``freeze`` refuses any column too many or too few; ``discard_columns`` leaves out those that the target does not have."""
    columns: dict[Identifier, NewColumn] = Field(default_factory=dict)
    """By name, each of ``new_columns``."""
    semantic_change: SemanticChange | None = None
    """Shown in the report."""
