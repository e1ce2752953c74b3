"""Whether a spec's checks and comparisons can be asked of the target at all; refused before anything is staged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import sqlglot
from sqlglot import exp

from airflow_backfill_provider.errors import SpecError, TransformRefused
from airflow_backfill_provider.spec.checks import ExpressionIsTrue, Relationships, Sql
from airflow_backfill_provider.spec.comparisons import (
    CompareAvg,
    CompareColumn,
    CompareMax,
    CompareMin,
    CompareSum,
    OtherTable,
)
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.report_queries import ReportQuery
from airflow_backfill_provider.transform import over, require_query
from airflow_backfill_provider.warehouses.base import AFTERWARDS, Constraint, Target, Warehouse
from airflow_backfill_provider.warehouses.predicate import row_expression, unknown_columns
from airflow_backfill_provider.warehouses.sql import quote, quote_path


def require_fit(spec: BackfillSpec, target: Target, warehouse: Warehouse) -> None:
    """:raises SpecError: an entry names a column or table that is not there, compares what is not a number, or holds
    SQL that is not one expression over a row or one SELECT that only reads."""
    dialect = warehouse.capabilities.dialect
    _require_columns(spec, target, dialect)
    for origin, condition in _conditions(spec):
        _require_expression(condition, origin, target, dialect)
    for number, check in enumerate(spec.checks):
        origin = f"checks[{number}].{check.kind}"
        texts = {"where": check.where, "expression": check.expression if isinstance(check, ExpressionIsTrue) else None}
        for field, text in texts.items():
            if text is not None:
                _require_expression(text, f"{origin}.{field}", target, dialect)
        if isinstance(check, Sql):
            _require_query(check.query, dialect, f"{origin}.query")
        if isinstance(check, Relationships):
            _require_readable(check.to, check.field, origin, warehouse)
    for query in spec.report_queries:
        _require_query(query.sql, dialect, f"report_queries {query.name}")
        afterwards(query, target, dialect)
    for number, entry in enumerate(spec.compare):
        if isinstance(entry, CompareColumn) and entry.against == "source" and spec.source is not None:
            column = entry.source_column or entry.column
            _require_readable(spec.source.table, column, f"compare[{number}].{entry.kind}", warehouse)
        against = getattr(entry, "against", None)
        if isinstance(against, OtherTable):
            for column in filter(None, (spec.target.partition_by, getattr(entry, "column", None))):
                _require_readable(against.table, column, f"compare[{number}].{entry.kind}.against", warehouse)


def checkable_constraints(target: Target, dialect: str) -> tuple[Target, list[str]]:
    """The target with the constraints that staged rows can be checked against, and a warning for each other one."""
    kept, warnings = [], []
    for constraint in target.constraints:
        if reason := _uncheckable(constraint, target, dialect):
            warnings.append(
                f"The constraint {constraint.name} ({constraint.text}) is not checked before the publish, which a row "
                f"that breaks it would fail: {reason}"
            )
        else:
            kept.append(constraint)
    return replace(target, constraints=tuple(kept)), warnings


def afterwards(query: ReportQuery, target: Target, dialect: str) -> str:
    """The query over :data:`AFTERWARDS` in the place of the target.

    :raises SpecError: it does not read the target, so that no backfill of it changes the number.
    """
    text = over(query.sql, target.table, AFTERWARDS, dialect)
    if text is None:
        raise SpecError(
            f"report_queries {query.name}: the SQL does not read {target.table}, or not as a table of that name. Write the name "
            "as target.table has it, in FROM or JOIN."
        )
    return text


def _uncheckable(constraint: Constraint, target: Target, dialect: str) -> str:
    if missing := [name for name in constraint.columns if name not in target.column_names]:
        return f"{', '.join(missing)} is computed by the table itself."
    try:
        for text in (constraint.expression, constraint.where):
            if text:
                row_expression(text, dialect)
    except SpecError as error:
        return str(error)
    return ""


def _require_columns(spec: BackfillSpec, target: Target, dialect: str) -> None:
    have = {column.name.casefold(): column for column in target.columns}
    level = spec.range.evidence.metric if spec.range.evidence is not None else None
    named = {name for entry in (*spec.checks, *spec.comparisons, level) for name in _columns(entry)}
    tolerated = spec.control_period.tolerance if spec.control_period is not None else {}
    named |= set(tolerated)
    if missing := sorted(name for name in named if name.casefold() not in have):
        there = ", ".join(sorted(column.name for column in target.columns))
        raise SpecError(f"A check names {', '.join(missing)}, but {target.table} has no such column; it has {there}.")
    if missing := sorted(name for name in spec.target.sensitive if name.casefold() not in have):
        there = ", ".join(sorted(column.name for column in target.columns))
        raise SpecError(
            f"target.sensitive names {', '.join(missing)}, but {target.table} has no such column; it has {there}."
        )
    if spec.samples and not spec.shown_columns(target.compared(spec.uncompared_columns)):
        raise SpecError(
            "samples: every column is sensitive or not compared, so a sample would show nothing. Leave samples out."
        )
    for name in tolerated:
        if not is_number(have[name.casefold()].type, dialect):
            raise SpecError(
                f"control_period.tolerance of {name} ({have[name.casefold()].type}): only numbers are close to one another. Leave "
                "it out: the column must then be equal."
            )
    if level is not None and level.aggregate in ("sum", "avg", "min", "max"):
        column = have[str(level.column).casefold()]
        if not is_number(column.type, dialect):
            raise SpecError(
                f"range.evidence.metric: {level} ({column.type}): a level is one of numbers. Take a column of numbers, or "
                "count_distinct or null_rate of this one."
            )
    for entry in spec.compare:
        if isinstance(entry, CompareSum | CompareMin | CompareMax | CompareAvg):
            column = have[entry.column.casefold()]
            if not is_number(column.type, dialect):
                raise SpecError(
                    f"compare {entry.kind} of {column.name} ({column.type}): a change is computed of numbers only. "
                    "Compare a column of numbers, or bound count_distinct or null_rate of this one."
                )


def _conditions(spec: BackfillSpec) -> Iterator[tuple[str, str]]:
    """Where the spec has a condition on rows beside its checks, and what it says."""
    if spec.range.affected_when is not None:
        yield "range.affected_when", spec.range.affected_when
    if spec.range.evidence is not None and spec.range.evidence.metric.sql is not None:
        yield "range.evidence.metric.sql", spec.range.evidence.metric.sql


def _columns(entry: object) -> Iterator[str]:
    if (column := getattr(entry, "column", None)) is not None:
        yield column
    yield from getattr(entry, "columns", ())
    yield from getattr(entry, "exclude_columns", ())


def is_number(type_: str, dialect: str) -> bool:
    """Whether a column of that type, as the engine writes it, holds numbers."""
    try:
        return exp.DataType.build(type_, dialect=dialect).is_type(*exp.DataType.NUMERIC_TYPES)
    except sqlglot.errors.SqlglotError:
        return False


def _require_expression(text: str, origin: str, target: Target, dialect: str) -> None:
    try:
        _require_query(f"SELECT {row_expression(text, dialect)} AS held", dialect, "The expression")
        missing = unknown_columns(text, dialect, target.column_names)
    except SpecError as error:
        raise SpecError(f"{origin}: {error}") from error
    if missing:
        raise SpecError(
            f"{origin}: {text!r} reads {', '.join(missing)}, which {target.table} has no column for; it has "
            f"{', '.join(target.column_names)}."
        )


def _require_query(sql: str, dialect: str, origin: str) -> None:
    try:
        require_query(sql, dialect, origin)
    except TransformRefused as error:
        raise SpecError(str(error)) from error


def _require_readable(name: str, column: str, origin: str, warehouse: Warehouse) -> None:
    table = quote_path(*name.split("."))
    try:
        warehouse.select_columns(f"SELECT {quote(column)} FROM {table}")  # noqa: S608 - both names are quoted
    except TransformRefused as error:
        raise SpecError(f"{origin}: {name} with a column {column} cannot be read: {error}") from error
