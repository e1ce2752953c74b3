"""Which rows of the source had arrived when the plan was made: the one predicate that every read of it is held to."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlglot
from sqlglot import exp

from airflow_backfill_provider.errors import SpecError, TransformRefused
from airflow_backfill_provider.spec.model import SourceSpec
from airflow_backfill_provider.warehouses.base import Warehouse
from airflow_backfill_provider.warehouses.sql import quote, quote_path

_WITH_ZONE = frozenset({exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ})
_WITHOUT = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ})


def arrived_by(source: SourceSpec | None, warehouse: Warehouse, at: datetime) -> str:
    """SQL over one row of the source that is true when it had arrived at ``at``; empty without ``source.cutoff``.

    A timestamp without a zone means UTC. A row whose arrival is NULL is never true.

    :raises SpecError: there is no such column, or it does not tell when a row arrived.
    """
    if source is None or source.cutoff is None:
        return ""
    column, dialect = source.cutoff.column, warehouse.capabilities.dialect
    origin = f"source.cutoff.column {column} of {source.table}"
    table = quote_path(*source.table.split("."))
    try:
        (found,) = warehouse.select_columns(f"SELECT {quote(column)} FROM {table}")  # noqa: S608 - both are quoted
    except TransformRefused as error:
        raise SpecError(f"{origin} cannot be read: {error}") from error
    moment = at.astimezone(UTC)
    if _is_one_of(found.type, _WITH_ZONE, dialect):
        literal = exp.cast(exp.Literal.string(moment.isoformat(sep=" ")), exp.DType.TIMESTAMPTZ)
    elif _is_one_of(found.type, _WITHOUT, dialect):
        naive = moment.replace(tzinfo=None)
        literal = exp.cast(exp.Literal.string(naive.isoformat(sep=" ")), exp.DType.TIMESTAMP)
    else:
        raise SpecError(
            f"{origin} is {found.type}; it must be a timestamp, since a coarser type cannot tell rows that arrived before "
            "the plan from those after it."
        )
    return exp.LTE(this=exp.column(column, quoted=True), expression=literal).sql(dialect=dialect)


def _is_one_of(type_: str, kinds: frozenset[exp.DType], dialect: str) -> bool:
    try:
        return exp.DataType.build(type_, dialect=dialect).is_type(*kinds)
    except sqlglot.errors.SqlglotError:
        return False
