"""What can be measured of rows: the word that checks ask in and warehouses answer in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

Scalar = int | float | Decimal | str | bool | None
"""One measured value. ``None`` means that there was nothing to measure (no rows, or only NULLs); never zero."""


class MetricKind(StrEnum):
    """Each is computed over the rows of one partition, or over those of many together."""

    ROWS = "rows"  # number of rows
    NULLS = "nulls"  # rows whose column is NULL
    DUPLICATES = "duplicates"  # rows that share their column values with an earlier row (rows minus distinct)
    OUTSIDE_VALUES = "outside_values"  # rows whose column is not NULL and not among ``values``
    OUTSIDE_RANGE = "outside_range"  # rows whose column is not NULL and outside [min_value, max_value]
    ORPHANS = "orphans"  # rows whose column is not NULL and not a value of ``to_field`` in ``to_table``
    UNTRUE = "untrue"  # rows for which ``expression`` is false or NULL
    COUNT_DISTINCT = "count_distinct"  # different values of the column that are not NULL
    SUM = "sum"  # exact for integers and decimals; None when every value is NULL or there are no rows
    MIN = "min"  # None as for a sum
    MAX = "max"  # None as for a sum


NOTHING_TO_MEASURE = frozenset({MetricKind.SUM, MetricKind.MIN, MetricKind.MAX})
"""What is None of no rows; every other kind is a count, and 0."""


@dataclass(frozen=True)
class Metric:
    """One thing to measure; equal metrics are measured once."""

    kind: MetricKind
    columns: tuple[str, ...] = ()
    values: tuple[Scalar, ...] = ()
    min_value: Scalar = None
    max_value: Scalar = None
    inclusive: bool = True
    to_table: str = ""
    to_field: str = ""
    expression: str = ""
    """SQL over the columns of one row."""
    where: str = ""
    """SQL over the columns of one row; only rows for which it is true are measured. Empty: every row."""

    @property
    def nothing(self) -> Scalar:
        """Its value of no rows."""
        return None if self.kind in NOTHING_TO_MEASURE else 0

    def __str__(self) -> str:
        """Different for different metrics, so that it can stand for one in the evidence."""
        about = [", ".join(self.columns)] if self.columns else []
        about += [repr([str(value) for value in self.values])] if self.values else []
        if (self.min_value, self.max_value) != (None, None):
            about.append(f"{self.min_value!s}..{self.max_value!s}{'' if self.inclusive else ' exclusive'}")
        about += [f"to {self.to_table}.{self.to_field}"] if self.to_table else []
        about += [self.expression] if self.expression else []
        text = f"{self.kind}({'; '.join(about)})" if about else str(self.kind)
        return f"{text} where {self.where}" if self.where else text


ROWS = Metric(MetricKind.ROWS)
