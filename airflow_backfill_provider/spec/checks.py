"""The checks a spec may ask for: tests of the staged rows alone; names and shape as in dbt, one class per kind.

In YAML each is a mapping with one key, the kind: ``- accepted_range: {column: amount, min_value: 0}``.
"""

from __future__ import annotations

import difflib
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    model_validator,
)

from airflow_backfill_provider.spec.names import Identifier, TableName
from airflow_backfill_provider.spec.threshold import Threshold

Severity = Literal["error", "warn"]


def _plain(number: Decimal) -> int | float | str:
    """A JSON value that reads back as the same number."""
    if number == number.to_integral_value():
        return int(number)
    return float(number) if Decimal(str(float(number))) == number else str(number)


def _condition(value: str) -> str:
    return str(Threshold.parse(value))


Condition = Annotated[str, AfterValidator(_condition)]
RowPredicate = Annotated[str, Field(min_length=1, pattern=r"\S")]
"""SQL of the reviewed spec over the columns of one row; the plan proves that it is one expression and no more."""
Number = Annotated[Decimal, Field(allow_inf_nan=False), PlainSerializer(_plain, when_used="json")]


class Frozen(BaseModel):
    """Base of everything a user writes: immutable, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Entry(Frozen):
    """What checks and comparisons have in common."""

    severity: Severity = "error"
    """``error`` stops the publish, ``warn`` is reported only."""
    over: Literal["partition", "range", "both"] | None = None
    """What is judged: each partition, the range as a whole, or both. Left out, it is both, unless the entry has a
    bound in rows or amounts other than 0, which cannot fit one partition and many alike: then each partition."""

    @property
    def grows(self) -> bool:
        """Whether a bound would have to grow with the number of partitions."""
        return False

    @property
    def judges_partitions(self) -> bool:
        """Whether it is asked of each partition."""
        return self.over != "range"

    @property
    def judges_range(self) -> bool:
        """Whether it is asked of the range as a whole."""
        return not self.grows if self.over is None else self.over != "partition"


class _Check(Entry):
    where: RowPredicate | None = None
    """A SQL predicate; only the staged rows for which it is true are looked at."""
    warn_if: Condition | None = None
    """On the number (or percentage) of rows that fail, ``"> 10"``; left out it is ``"!= 0"``, as in dbt."""
    error_if: Condition | None = None
    """As ``warn_if``; looked at first, and only at severity ``error``, as in dbt."""

    @property
    def grows(self) -> bool:
        conditions = [Threshold.parse(text) for text in (self.warn_if, self.error_if) if text is not None]
        return any(condition.value and not condition.percent for condition in conditions)


class _BoundedCheck(_Check):
    """A check with bounds of its own: one failure when they are broken, so that a percentage has no meaning."""

    @model_validator(mode="after")
    def _no_percentage(self) -> Self:
        for name in ("warn_if", "error_if"):
            if str(getattr(self, name)).endswith("%"):
                raise ValueError(f"{name} cannot be a percentage here: {self.__class__.__name__} fails as a whole")
        return self


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


class UniqueCombination(_Check):
    """No two staged rows of a partition share the values of all the columns together (dbt_utils)."""

    kind: Literal["unique_combination_of_columns"] = "unique_combination_of_columns"
    combination_of_columns: Annotated[tuple[Identifier, ...], Field(min_length=2)]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, as other checks call them."""
        return self.combination_of_columns


class NotNull(_Check):
    """No staged row has NULL in the column."""

    kind: Literal["not_null"] = "not_null"
    column: Identifier


class NotNullProportion(_BoundedCheck):
    """The share of rows whose column is not NULL lies in ``[at_least, at_most]`` (dbt_utils)."""

    kind: Literal["not_null_proportion"] = "not_null_proportion"
    column: Identifier
    at_least: Annotated[Number, Field(ge=0, le=1)] = Decimal(0)
    at_most: Annotated[Number, Field(ge=0, le=1)] = Decimal(1)

    @model_validator(mode="after")
    def _bounded(self) -> NotNullProportion:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least} is above at_most {self.at_most}")
        if self.at_least == 0 and self.at_most == 1:
            raise ValueError("give at_least, at_most or both: every proportion lies between 0 and 1")
        return self


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


class Relationships(_Check):
    """Every value of the column that is not NULL stands in the field of another table, as it is when checked."""

    kind: Literal["relationships"] = "relationships"
    column: Identifier
    to: TableName
    field: Identifier


class ExpressionIsTrue(_Check):
    """A SQL expression over the columns of one row is true for every row; NULL is not true."""

    kind: Literal["expression_is_true"] = "expression_is_true"
    expression: RowPredicate


class RowCount(_BoundedCheck):
    """The number of staged rows, or of those that ``where`` leaves, lies in the range; at least one bound."""

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

    @property
    def grows(self) -> bool:
        return bool(self.max_value) or super().grows


class Sql(_Check):
    """A query of the user's that must return no row; the table ``stage`` holds the staged rows, those that ``where``
    leaves. A percentage is of these rows."""

    kind: Literal["sql"] = "sql"
    name: Identifier
    query: Annotated[str, Field(min_length=1)]


CHECK_KINDS = (
    "unique",
    "unique_combination_of_columns",
    "not_null",
    "not_null_proportion",
    "accepted_values",
    "accepted_range",
    "relationships",
    "expression_is_true",
    "row_count",
    "sql",
)


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


def kind_of(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)


Check = Annotated[
    Annotated[Unique, Tag("unique")]
    | Annotated[UniqueCombination, Tag("unique_combination_of_columns")]
    | Annotated[NotNull, Tag("not_null")]
    | Annotated[NotNullProportion, Tag("not_null_proportion")]
    | Annotated[AcceptedValues, Tag("accepted_values")]
    | Annotated[AcceptedRange, Tag("accepted_range")]
    | Annotated[Relationships, Tag("relationships")]
    | Annotated[ExpressionIsTrue, Tag("expression_is_true")]
    | Annotated[RowCount, Tag("row_count")]
    | Annotated[Sql, Tag("sql")],
    Discriminator(kind_of),
    BeforeValidator(lambda value: one_key_mapping(value, CHECK_KINDS)),
]
