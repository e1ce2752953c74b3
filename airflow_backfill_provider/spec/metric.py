"""What can be measured of a partition's rows: the word that checks ask in and warehouses answer in."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

Scalar = int | float | Decimal | str | bool | None
"""One measured value. ``None`` means that there was nothing to measure (no rows, or only NULLs); never zero."""


class MetricKind(StrEnum):
    """Each is computed over the rows of one partition."""

    ROWS = "rows"  # number of rows
    NULLS = "nulls"  # rows whose column is NULL
    DUPLICATES = "duplicates"  # rows that share their column values with an earlier row (rows minus distinct)
    OUTSIDE_VALUES = "outside_values"  # rows whose column is not NULL and not among ``values``
    OUTSIDE_RANGE = "outside_range"  # rows whose column is not NULL and outside [min_value, max_value]
    SUM = "sum"  # exact for integers and decimals; None when every value is NULL or there are no rows


@dataclass(frozen=True)
class Metric:
    """One thing to measure; equal metrics are measured once."""

    kind: MetricKind
    columns: tuple[str, ...] = ()
    values: tuple[Scalar, ...] = ()
    min_value: Scalar = None
    max_value: Scalar = None
    inclusive: bool = True

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.columns)})" if self.columns else str(self.kind)


ROWS = Metric(MetricKind.ROWS)
