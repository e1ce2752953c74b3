"""Metrics and row differences of the in-memory warehouse, computed exactly in Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from airflow_backfill_provider.spec.metric import Metric, MetricKind, Scalar
from airflow_backfill_provider.warehouses.base import RowDiff
from airflow_backfill_provider.warehouses.clocks import Clock
from airflow_backfill_provider.warehouses.memory.rows import fingerprint
from airflow_backfill_provider.warehouses.memory.select import Row, Table
from airflow_backfill_provider.warehouses.memory.values import Value, cast, land, parse_type
from airflow_backfill_provider.warehouses.sql import within
from airflow_backfill_provider.windows import Partition

_EXACT_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL"})


def measure_rows(table: Table, metric: Metric) -> Scalar:
    """One metric over all rows of the table."""
    positions = {column.name: index for index, column in enumerate(table.columns)}
    chosen = [tuple(row[positions[name]] for name in metric.columns) for row in table.rows]
    if metric.kind is MetricKind.ROWS:
        return len(chosen)
    if metric.kind is MetricKind.DUPLICATES:
        return len(chosen) - len(set(chosen))
    type_ = table.columns[positions[metric.columns[0]]].type
    values: list[Any] = [value for (value,) in chosen if value is not None]
    match metric.kind:
        case MetricKind.NULLS:
            return len(chosen) - len(values)
        case MetricKind.OUTSIDE_VALUES:
            accepted = _fitting(metric.values, type_)
            return sum(value not in accepted for value in values)
        case MetricKind.OUTSIDE_RANGE:
            low, high = _bound(metric.min_value, type_), _bound(metric.max_value, type_)
            return sum(not _within(value, low, high, inclusive=metric.inclusive) for value in values)
        case MetricKind.SUM:
            if not values:
                return None
            return math.fsum(values) if isinstance(values[0], float) else sum(values)


def metric_query(table: str, partition_by: str, clock: Clock, partition: Partition, metric: Metric) -> str:
    """The metric of one partition as a statement that ``MemoryWarehouse.query`` runs."""
    column = _quote(metric.columns[0]) if metric.columns else ""
    match metric.kind:
        case MetricKind.ROWS:
            measured = "count(*)"
        case MetricKind.NULLS:
            measured = f"count(*) - count({column})"
        case MetricKind.DUPLICATES:
            columns = ", ".join(map(_quote, metric.columns))
            source = _partition_rows(table, partition_by, clock, partition)
            return (
                f"SELECT (SELECT count(*) {source}) - (SELECT count(*) FROM (SELECT DISTINCT {columns} {source}) AS d)"
            )
        case MetricKind.OUTSIDE_VALUES:
            accepted = ", ".join(map(_literal, metric.values))
            measured = f"count(CASE WHEN {column} NOT IN ({accepted}) THEN 1 END)"
        case MetricKind.OUTSIDE_RANGE:
            or_equal = "" if metric.inclusive else "="
            bounds = ((f"<{or_equal}", metric.min_value), (f">{or_equal}", metric.max_value))
            outside = " OR ".join(f"{column} {sign} {_literal(bound)}" for sign, bound in bounds if bound is not None)
            measured = f"count(CASE WHEN {outside} THEN 1 END)"
        case MetricKind.SUM:
            measured = f"sum({column})"
    return f"SELECT {measured} {_partition_rows(table, partition_by, clock, partition)}"


def diff_rows(key: Sequence[str], names: Sequence[str], old: Sequence[Row], new: Sequence[Row]) -> RowDiff:
    """Match two lists of rows, whose values stand in the order of ``names``, by key."""
    positions = [names.index(name) for name in key]
    sides = [[(tuple(row[position] for position in positions), row) for row in side] for side in (old, new)]
    (old_absent, old_repeated), (new_absent, new_repeated) = (_key_faults([k for k, _ in side]) for side in sides)
    if old_absent or old_repeated or new_absent or new_repeated:
        return RowDiff(
            old=len(old),
            new=len(new),
            old_null_keys=old_absent,
            new_null_keys=new_absent,
            old_duplicate_keys=old_repeated,
            new_duplicate_keys=new_repeated,
        )
    before, after = dict(sides[0]), dict(sides[1])
    shared = before.keys() & after.keys()
    identical = sum(before[row_key] == after[row_key] for row_key in shared)
    return RowDiff(
        old=len(old),
        new=len(new),
        identical=identical,
        changed=len(shared) - identical,
        added=len(after) - len(shared),
        removed=len(before) - len(shared),
        old_fingerprint=fingerprint(old),
        new_fingerprint=fingerprint(new),
    )


def _key_faults(keys: Sequence[Row]) -> tuple[int, int]:
    """How many have a NULL in them, and how many of the others repeat one before them."""
    known = [key for key in keys if None not in key]
    return len(keys) - len(known), len(known) - len(set(known))


def _fitting(values: Sequence[Scalar], type_: str) -> set[Value]:
    fitting: set[Value] = set()
    for value in values:
        try:
            fitting.add(land(value, type_))
        except ValueError:
            continue  # no value of the column can equal it
    return fitting


def _bound(bound: Scalar, type_: str) -> Any:
    """A bound that compares with the column's values; never rounded to a whole number."""
    if bound is None or (parse_type(type_)[0] in _EXACT_NUMBERS and not isinstance(bound, str)):
        return bound
    return cast(bound, type_)


def _within(value: Any, low: Any, high: Any, *, inclusive: bool) -> bool:
    if inclusive:
        return (low is None or value >= low) and (high is None or value <= high)
    return (low is None or value > low) and (high is None or value < high)


def _partition_rows(table: str, partition_by: str, clock: Clock, partition: Partition) -> str:
    name = ".".join(map(_quote, table.split(".")))
    return f"FROM {name} WHERE {within(_quote(partition_by), [partition.span], clock)}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Scalar) -> str:
    if value is None or isinstance(value, bool | int | float | Decimal):
        return "NULL" if value is None else str(value)
    return "'" + value.replace("'", "''") + "'"
