"""The checks and comparisons a spec may ask for: names and shape as in dbt, one class per kind.

In YAML each is a mapping with one key, the kind: ``- accepted_range: {column: amount, min_value: 0}``.
A *check* looks at the staged rows alone; a *comparison* looks at staged rows against something else.
"""

from __future__ import annotations

import difflib
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    model_validator,
)

from airflow_backfill_provider.spec.names import Identifier

Severity = Literal["error", "warn"]


def _plain(number: Decimal) -> int | float | str:
    """A JSON value that reads back as the same number."""
    if number == number.to_integral_value():
        return int(number)
    return float(number) if Decimal(str(float(number))) == number else str(number)


Number = Annotated[Decimal, Field(allow_inf_nan=False), PlainSerializer(_plain, when_used="json")]


class Frozen(BaseModel):
    """Base of everything a user writes: immutable, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class _Check(Frozen):
    severity: Severity = "error"
    """``error`` stops the publish, ``warn`` is reported only."""


class Unique(_Check):
    """No two staged rows of a partition share the value of the column, or of all the columns together."""

    kind: Literal["unique"] = "unique"
    column: Identifier | None = None
    columns: tuple[Identifier, ...] = ()

    @model_validator(mode="after")
    def _one_of(self) -> Unique:
        if (self.column is None) == (not self.columns):
            raise ValueError("give either column or columns")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, however they were written."""
        return self.columns or (str(self.column),)


class NotNull(_Check):
    """No staged row has NULL in the column."""

    kind: Literal["not_null"] = "not_null"
    column: Identifier


class AcceptedValues(_Check):
    """Every value of the column that is not NULL is among the values."""

    kind: Literal["accepted_values"] = "accepted_values"
    column: Identifier
    values: Annotated[tuple[Annotated[bool, Field(strict=True)] | Number | str, ...], Field(min_length=1)]


class AcceptedRange(_Check):
    """Every value of the column that is not NULL lies in the range; at least one bound."""

    kind: Literal["accepted_range"] = "accepted_range"
    column: Identifier
    min_value: Number | str | None = None
    max_value: Number | str | None = None
    inclusive: bool = True

    @model_validator(mode="after")
    def _bounded(self) -> AcceptedRange:
        if self.min_value is None and self.max_value is None:
            raise ValueError("give min_value, max_value or both")
        if type(self.min_value) is type(self.max_value) is Decimal and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value} is above max_value {self.max_value}")
        return self


class RowCount(_Check):
    """The number of staged rows of a partition lies in the range; at least one bound."""

    kind: Literal["row_count"] = "row_count"
    min_value: Annotated[int, Field(ge=0)] | None = None
    max_value: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _bounded(self) -> RowCount:
        if self.min_value is None and self.max_value is None:
            raise ValueError("give min_value, max_value or both")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value} is above max_value {self.max_value}")
        return self


class Sql(_Check):
    """A query of the user's that must return no row; the table ``stage`` holds one partition's staged rows."""

    kind: Literal["sql"] = "sql"
    name: Identifier
    query: Annotated[str, Field(min_length=1)]


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


class _Comparison(_Check):
    change_between: Change | None = None
    max_abs_change: Annotated[Number, Field(ge=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse_change(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("change_between"), list | tuple):
            return data | {"change_between": Change.parse(data["change_between"])}
        return data

    @model_validator(mode="after")
    def _one_bound(self) -> _Comparison:
        if (self.change_between is None) == (self.max_abs_change is None):
            raise ValueError("give either change_between or max_abs_change")
        return self


class CompareRowCount(_Comparison):
    """Staged row count minus the other side's, per partition."""

    kind: Literal["row_count"] = "row_count"
    against: Literal["baseline", "source"] = "baseline"


class CompareSum(_Comparison):
    """Staged sum of a column minus the published one, per partition."""

    kind: Literal["sum"] = "sum"
    column: Identifier
    against: Literal["baseline"] = "baseline"


class CompareRows(_Check):
    """Rows matched by ``target.key``, old against new, per partition; each bound left out is unbounded."""

    kind: Literal["row_diff"] = "row_diff"
    max_added: Annotated[int, Field(ge=0)] | None = None
    max_removed: Annotated[int, Field(ge=0)] | None = None
    max_changed: Annotated[int, Field(ge=0)] | None = None


CHECK_KINDS = ("unique", "not_null", "accepted_values", "accepted_range", "row_count", "sql")
COMPARISON_KINDS = ("row_count", "sum", "row_diff")


def one_key_mapping(value: Any, kinds: tuple[str, ...]) -> Any:
    """``{kind: {…}}`` as written in YAML becomes ``{"kind": kind, …}``; anything else is left for pydantic."""
    if not isinstance(value, dict):
        return value
    if "kind" not in value:
        if len(value) != 1:
            raise ValueError(f"each entry has exactly one key, its kind: one of {', '.join(kinds)}")
        ((kind, body),) = value.items()
        if body is not None and not isinstance(body, dict):
            raise ValueError(f"{kind} takes a mapping, such as {{column: amount}}")
        value = {**(body or {}), "kind": kind}
    if value["kind"] not in kinds:
        near = difflib.get_close_matches(str(value["kind"]), kinds, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{value['kind']!r} is not a known kind; {hint}known: {', '.join(kinds)}")
    return value


def _kind(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


Check = Annotated[
    Annotated[Unique, Tag("unique")]
    | Annotated[NotNull, Tag("not_null")]
    | Annotated[AcceptedValues, Tag("accepted_values")]
    | Annotated[AcceptedRange, Tag("accepted_range")]
    | Annotated[RowCount, Tag("row_count")]
    | Annotated[Sql, Tag("sql")],
    Discriminator(_kind),
    BeforeValidator(lambda value: one_key_mapping(value, CHECK_KINDS)),
]
Comparison = Annotated[
    Annotated[CompareRowCount, Tag("row_count")]
    | Annotated[CompareSum, Tag("sum")]
    | Annotated[CompareRows, Tag("row_diff")],
    Discriminator(_kind),
    BeforeValidator(lambda value: one_key_mapping(value, COMPARISON_KINDS)),
]
