"""What shows that a request's range is the right one: a number that the bug moved, and the rows that it touched."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from airflow_backfill_provider.spec.checks import Frozen, RowPredicate
from airflow_backfill_provider.spec.names import Identifier

Moment = Annotated[str, Field(min_length=1, max_length=64)]


class Level(Frozen):
    """One number of each partition's published rows."""

    column: Identifier | None = None
    aggregate: Literal["avg", "sum", "min", "max", "count_distinct", "null_rate"] | None = None
    """What is made of the column."""
    sql: RowPredicate | None = None
    """Instead of both, SQL over the columns of one row: the share of rows for which it is true."""

    @model_validator(mode="after")
    def _one_of(self) -> Level:
        if (self.column is None) != (self.aggregate is None) or (self.column is None) == (self.sql is None):
            raise ValueError("give either column and aggregate, or sql, a condition on one row")
        return self

    def __str__(self) -> str:
        return f"share of rows with {self.sql}" if self.sql is not None else f"{self.aggregate} of {self.column}"


class RangeEvidence(Frozen):
    """Since when the published rows are wrong, who says so, and a number that shows it."""

    introduced_by: Annotated[str, Field(min_length=1, max_length=2_000)]
    """What began the bug: a change, a release, an incident."""
    introduced_at: Moment
    """The date, month, year or datetime from which on it touched rows, in the target's zone."""
    metric: Level
    margin: Annotated[int, Field(ge=2, le=1_000)] = 14
    """Partitions before and after the range that are looked at as well."""


class RangeSpec(Frozen):
    """What is known of the rows that a backfill is to correct; the range itself comes with the request."""

    evidence: RangeEvidence | None = None
    """A number that the bug moved: where its level changes is held against the range."""
    affected_when: RowPredicate | None = None
    """SQL over the columns of one published row; partitions in which no row is affected are left out of the plan."""
