"""What the transform's columns may be beside the target's, and what those that are new mean."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.names import Identifier

Text = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]


class NewColumn(Frozen):
    """What it means that a new column has no value."""

    null_means: Literal["unknown", "unavailable", "default"]
    """``unknown``: there is a value, and nobody knows it; ``unavailable``: there is none; ``default``: there is no NULL,
    since a default stands in its place."""
    because: Text | None = None
    """With ``default``, why the default is right where the value is not known. Without it the plan warns, and a column of
    numbers that is 0 in every row is not published."""

    def __str__(self) -> str:
        match self.null_means:
            case "unknown":
                return "NULL: there is a value, and nobody knows it"
            case "unavailable":
                return "NULL: there is no value"
            case "default":
                return "a default stands where the value is not known" + (f": {self.because}" if self.because else "")


class SemanticChange(Frozen):
    """A boundary at which the same column means something else, and which no backfill makes consistent."""

    at: Annotated[str, Field(min_length=1, max_length=64)]
    note: Text


class SchemaSpec(Frozen):
    """The gate between the transform's columns and the target's, before the first partition is computed."""

    mode: Literal["freeze", "discard_columns", "discard_rows", "evolve"] = "freeze"
    """``freeze`` refuses any column too many or too few; ``discard_columns`` leaves out those that the target does not have;
    ``discard_rows`` leaves out rows that break a CHECK or a NOT NULL of the target; ``evolve`` lets the publish add those of
    ``new_columns``, each with what its NULL means as the comment."""
    max_discarded: Annotated[int, Field(ge=1)] | None = None
    """With ``discard_rows``, how many rows of the whole range may be left out at most; more stop the publish."""
    columns: dict[Identifier, NewColumn] = Field(default_factory=dict)
    """By name, each of ``new_columns``."""
    semantic_change: SemanticChange | None = None
    """Shown in the report."""

    @model_validator(mode="after")
    def _what_is_left_out_is_bounded(self) -> SchemaSpec:
        if (self.mode == "discard_rows") != (self.max_discarded is not None):
            raise ValueError(
                "mode: discard_rows needs max_discarded: how many rows of the range may be left out, and no other mode has it"
            )
        return self
