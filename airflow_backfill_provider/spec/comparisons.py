"""The comparisons a spec may ask for: staged rows against something else; one class per kind.

In YAML each is a mapping with one key, the kind: ``- sum: {column: amount, change_between: [-8%, 0%]}``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from airflow_backfill_provider.spec.checks import Entry, Frozen, Number, kind_of, one_key_mapping
from airflow_backfill_provider.spec.names import Identifier, TableName


class Change(Frozen):
    """How far new may be from old, signed: a number, or a percentage of the old value (``-8%``)."""

    low: Number
    high: Number
    percent: bool = False

    @model_validator(mode="after")
    def _low_first(self) -> Change:
        if self.low > self.high:
            raise ValueError(f"the lower bound comes first: {self.low} is above {self.high}")
        return self

    @classmethod
    def parse(cls, value: Any) -> Any:
        """``[low, high]``, both numbers or both percentages, low first."""
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError("give two numbers or two percentages: [low, high]")
        percents = [isinstance(bound, str) and bound.strip().endswith("%") for bound in value]
        if percents[0] != percents[1] and not any(bound == 0 for bound in value):
            raise ValueError("give both bounds as numbers or both as percentages")
        low, high = (_number(bound) for bound in value)
        return {"low": low, "high": high, "percent": any(percents)}


def _number(value: Any) -> Decimal:
    text = str(value).strip().removesuffix("%")
    try:
        number = Decimal(text)
    except ArithmeticError as error:
        raise ValueError(f"{value!r} is neither a number nor a percentage") from error
    if not number.is_finite() or isinstance(value, bool):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    return number


class OtherTable(Frozen):
    """A table with the target's partition column, whose rows of the same partitions are the other side."""

    table: TableName

    @property
    def side(self) -> str:
        """What its numbers go by: apart from ``baseline``, whatever the table is called."""
        return f"table {self.table}"

    def __str__(self) -> str:
        return self.table


LAST_GOOD = "last_good"


class Measure(Entry):
    """A number measured on both sides; change = new - old, signed. At least one bound.

    Tolerances widen a bound on the change at both ends. Alone they bound it themselves: the change is at most
    ``abs_tol``, or ``rel_tol`` times the old value, whichever is more. Against the trial, ``max_times`` is the only bound.
    """

    against: Literal["baseline", "source", "trial", "last_good"] | OtherTable = "baseline"
    """What staged rows are compared with: the published ones, those of the source or of another table, what the last backfill
    of the partition published that was completed and not rolled back, or what changed in the partition that was tried first."""
    max_times: Annotated[Number, Field(ge=1)] | None = None
    """With ``against: trial``, how many times the change of that partition the change of another may be; by default 10."""
    change_between: Change | None = None
    max_abs_change: Annotated[Number, Field(ge=0)] | None = None
    abs_tol: Annotated[Number, Field(ge=0)] | None = None
    rel_tol: Annotated[Number, Field(ge=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse_change(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("change_between"), list | tuple):
            return data | {"change_between": Change.parse(data["change_between"])}
        return data

    @model_validator(mode="after")
    def _one_bound(self) -> Measure:
        given = [bound for bound in (self.change_between, self.max_abs_change) if bound is not None]
        if self.against == "trial":
            if given or self.is_tolerance or self.over is not None:
                raise ValueError("against: trial is bounded by max_times alone, and judged once for the range")
            return self
        if self.max_times is not None:
            raise ValueError("max_times needs against: trial")
        if self.against == LAST_GOOD and self.over not in (None, "partition"):
            raise ValueError(
                "against: last_good is judged for each partition, whose numbers the ledger kept; leave over out"
            )
        if len(given) > 1 or not (given or self.is_tolerance):
            raise ValueError("give either change_between or max_abs_change, or rel_tol or abs_tol alone")
        return self

    @property
    def other_side(self) -> str:
        """The rows that the staged ones are measured beside: ``baseline``, ``source``, ``last_good``, or ``table`` and its name."""
        if isinstance(self.against, OtherTable):
            return self.against.side
        return "baseline" if self.against == "trial" else self.against

    @property
    def times(self) -> Decimal:
        """How many times the change of the trial's partition another one may change by."""
        return Decimal(10) if self.max_times is None else self.max_times

    @property
    def judges_partitions(self) -> bool:
        return self.against != "trial" and super().judges_partitions

    @property
    def judges_range(self) -> bool:
        return self.against == "trial" or (self.against != LAST_GOOD and super().judges_range)

    @property
    def is_tolerance(self) -> bool:
        """Whether a tolerance is given."""
        return self.abs_tol is not None or self.rel_tol is not None

    @property
    def _bounds_amounts(self) -> bool:
        change = self.change_between
        amounts = [self.max_abs_change, self.abs_tol]
        amounts += [change.low, change.high] if change is not None and not change.percent else []
        return any(amounts)


class CompareRowCount(Measure):
    """Staged row count minus the other side's."""

    kind: Literal["row_count"] = "row_count"

    def of_side(self, side: str) -> Self:
        """Rows are counted alike on every side."""
        return self

    @property
    def grows(self) -> bool:
        return self._bounds_amounts


class CompareColumn(Measure):
    """A number made of one column."""

    column: Identifier
    source_column: Identifier | None = None
    """With ``against: source``, the source's column, where it has another name."""

    @model_validator(mode="after")
    def _only_a_source_has_other_columns(self) -> CompareColumn:
        if self.source_column is not None and self.against != "source":
            raise ValueError("source_column needs against: source")
        return self

    def of_side(self, side: str) -> Self:
        """The same number of the rows of that side, whose column may have another name."""
        if side == "source" and self.source_column is not None:
            return self.model_copy(update={"column": self.source_column})
        return self


class CompareSum(CompareColumn):
    """Staged sum of a column minus the published one."""

    kind: Literal["sum"] = "sum"

    @property
    def grows(self) -> bool:
        return self._bounds_amounts


class CompareMin(CompareColumn):
    """Smallest staged value of a column of numbers minus the smallest published one."""

    kind: Literal["min"] = "min"


class CompareMax(CompareColumn):
    """Largest staged value of a column of numbers minus the largest published one."""

    kind: Literal["max"] = "max"


class CompareAvg(CompareColumn):
    """Average of the staged values that are not NULL minus the published average."""

    kind: Literal["avg"] = "avg"


class CompareCountDistinct(CompareColumn):
    """Number of different staged values that are not NULL minus the published number."""

    kind: Literal["count_distinct"] = "count_distinct"

    @property
    def grows(self) -> bool:
        return self._bounds_amounts


class CompareNullRate(CompareColumn):
    """Share of staged rows whose column is NULL, from 0 to 1, minus the published share."""

    kind: Literal["null_rate"] = "null_rate"


class CompareRows(Entry):
    """Rows matched by ``target.key``, old against new; each bound left out is unbounded."""

    kind: Literal["row_diff"] = "row_diff"
    max_added: Annotated[int, Field(ge=0)] | None = None
    max_removed: Annotated[int, Field(ge=0)] | None = None
    max_changed: Annotated[int, Field(ge=0)] | None = None
    exclude_columns: tuple[Identifier, ...] = ()
    """Columns whose values are not compared, such as ``loaded_at``; they are published all the same."""

    @property
    def limits(self) -> dict[str, int]:
        """The bounds that are given, by what they bound."""
        limits = {"added": self.max_added, "removed": self.max_removed, "changed": self.max_changed}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def grows(self) -> bool:
        return any(self.limits.values())


COMPARISON_KINDS = ("row_count", "sum", "min", "max", "avg", "count_distinct", "null_rate", "row_diff")
AnyMeasure = (
    CompareRowCount | CompareSum | CompareMin | CompareMax | CompareAvg | CompareCountDistinct | CompareNullRate
)
Comparison = Annotated[
    Annotated[CompareRowCount, Tag("row_count")]
    | Annotated[CompareSum, Tag("sum")]
    | Annotated[CompareMin, Tag("min")]
    | Annotated[CompareMax, Tag("max")]
    | Annotated[CompareAvg, Tag("avg")]
    | Annotated[CompareCountDistinct, Tag("count_distinct")]
    | Annotated[CompareNullRate, Tag("null_rate")]
    | Annotated[CompareRows, Tag("row_diff")],
    Discriminator(kind_of),
    BeforeValidator(lambda value: one_key_mapping(value, COMPARISON_KINDS)),
]
