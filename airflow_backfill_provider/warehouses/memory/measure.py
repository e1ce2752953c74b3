"""Metrics and row differences of the in-memory warehouse, computed exactly in Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from airflow_backfill_provider.spec.metric import Metric, MetricKind, Scalar
from airflow_backfill_provider.warehouses.base import RowDiff, Target, Tolerance
from airflow_backfill_provider.warehouses.clocks import Clock
from airflow_backfill_provider.warehouses.memory.rows import in_order
from airflow_backfill_provider.warehouses.memory.select import DIALECT, Row, Select, Table
from airflow_backfill_provider.warehouses.memory.values import Value, cast, land, parse_type
from airflow_backfill_provider.warehouses.predicate import row_expression
from airflow_backfill_provider.warehouses.sql import within
from airflow_backfill_provider.windows import Partition

_EXACT_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL"})


def measure_rows(table: Table, metric: Metric, tables: Mapping[str, Table]) -> Scalar:
    """One metric over all rows of the table; ``tables`` are those that a relationship may name."""
    if metric.where:
        held = flags(table, metric.where)
        table = Table(table.columns, tuple(row for row, flag in zip(table.rows, held, strict=True) if flag))
    positions = {column.name: index for index, column in enumerate(table.columns)}
    chosen = [tuple(row[positions[name]] for name in metric.columns) for row in table.rows]
    match metric.kind:
        case MetricKind.ROWS:
            return len(chosen)
        case MetricKind.DUPLICATES:
            return len(chosen) - len(set(chosen))
        case MetricKind.UNTRUE:
            return flags(table, metric.expression).count(False)
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
        case MetricKind.ORPHANS:
            known = {value for (value,) in in_order(tables[metric.to_table], (metric.to_field,))}
            return sum(value not in known for value in values)
        case MetricKind.COUNT_DISTINCT:
            return len(set(values))
        case MetricKind.SUM:
            if not values:
                return None
            return math.fsum(values) if isinstance(values[0], float) else sum(values)
        case MetricKind.MIN | MetricKind.MAX:
            lowest: Scalar = min(values, default=None)
            return lowest if metric.kind is MetricKind.MIN else max(values, default=None)
    raise AssertionError(metric)


def flags(table: Table, expression: str) -> list[bool]:
    """For each row whether the expression is true; NULL is not.

    :raises SpecError: it is not one expression over one row.
    :raises WarehouseError: it cannot be bound, or failed.
    """
    test = row_expression(expression, DIALECT)
    found = Select.bind(f"SELECT CASE WHEN {test} THEN 1 ELSE 0 END AS held FROM stage", {"stage": table}).run()
    return [bool(held) for (held,) in found]


def metric_query(
    tables: Sequence[str], partition_by: str, clock: Clock, partitions: Sequence[Partition], metric: Metric
) -> str:
    """The metric of the partitions together as a statement that ``MemoryWarehouse.query`` runs."""
    column = _quote(metric.columns[0]) if metric.columns else ""
    source = _partition_rows(tables, partition_by, clock, partitions)
    if metric.where:
        source += f" AND ({row_expression(metric.where, DIALECT)})"
    match metric.kind:
        case MetricKind.ROWS:
            measured = "count(*)"
        case MetricKind.NULLS:
            measured = f"count(*) - count({column})"
        case MetricKind.DUPLICATES:
            columns = ", ".join(map(_quote, metric.columns))
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
        case MetricKind.UNTRUE:
            test = row_expression(metric.expression, DIALECT)
            measured = f"count(CASE WHEN {test} THEN NULL ELSE 1 END)"
        case MetricKind.ORPHANS:
            known, field = _dotted(metric.to_table), _quote(metric.to_field)
            subquery = f"SELECT t.{field} FROM {known} AS t WHERE t.{field} IS NOT NULL"
            measured = f"count(CASE WHEN {column} NOT IN ({subquery}) THEN 1 END)"
        case MetricKind.COUNT_DISTINCT:
            measured = f"count(DISTINCT {column})"
        case MetricKind.SUM | MetricKind.MIN | MetricKind.MAX:
            measured = f"{metric.kind}({column})"
    return f"SELECT {measured} {source}"


def key_conflict_queries(tables: Sequence[str], target: Target, partitions: Sequence[Partition]) -> tuple[str, str]:
    """The keys of these rows that are published outside the partitions too, and those that repeat; for ``MemoryWarehouse.query``."""
    names = [_quote(name) for name in target.key]
    present = " AND ".join(f"{name} IS NOT NULL" for name in names)
    rows = f"{_partition_rows(tables, target.partition_by, target.clock, partitions)} AND {present}"
    staged = f"SELECT {', '.join(f'{name} AS k{number}' for number, name in enumerate(names))} {rows}"
    match = " AND ".join(f"p.{name} = s.k{number}" for number, name in enumerate(names))
    inside = within(f"p.{_quote(target.partition_by)}", partitions, target.clock)
    outside = (
        f"SELECT DISTINCT {', '.join(f'p.{name}' for name in names)} FROM {_dotted(target.table)} AS p "
        f"JOIN ({staged}) AS s ON {match} WHERE ({inside}) IS NOT TRUE"
    )
    keys = ", ".join(names)
    return outside, f"SELECT {keys} {rows} GROUP BY {keys} HAVING count(*) > 1"


Keyed = list[tuple[Row, Row]]


def keyed(table: Table, key: Sequence[str], names: Sequence[str]) -> Keyed:
    """For each row its key and its values of the named columns."""
    return list(zip(in_order(table, key), in_order(table, names), strict=True))


def diff_rows(old: Keyed, new: Keyed) -> RowDiff:
    """Match two lists of rows by key."""
    sides = (old, new)
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
    )


def changes_by_column(names: Sequence[str], old: Keyed, new: Keyed, tolerance: Tolerance) -> dict[str, int]:
    """In how many rows matched by key each column differs by more than its tolerance, without those that never do."""
    before, after = dict(old), dict(new)
    allowed = {name.casefold(): limit for name, limit in tolerance.items()}
    changes = Counter(
        name
        for key in before.keys() & after.keys()
        for name, was, now in zip(names, before[key], after[key], strict=True)
        if was != now and not _close(was, now, allowed.get(name.casefold()))
    )
    return {name: changes[name] for name in names if changes[name]}


def _close(old: Value, new: Value, tolerance: Decimal | None) -> bool:
    numbers = (int, float, Decimal)
    if tolerance is None or not isinstance(old, numbers) or not isinstance(new, numbers):
        return False
    if not (math.isfinite(old) and math.isfinite(new)):
        return False
    return abs(Decimal(str(old)) - Decimal(str(new))) <= tolerance


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


def _partition_rows(tables: Sequence[str], partition_by: str, clock: Clock, partitions: Sequence[Partition]) -> str:
    inside = within(_quote(partition_by), partitions, clock)
    if len(tables) == 1:
        return f"FROM {_dotted(tables[0])} WHERE {inside}"
    together = " UNION ALL ".join(f"SELECT * FROM {_dotted(table)}" for table in tables)
    return f"FROM ({together}) AS r WHERE {inside}"


def _dotted(name: str) -> str:
    return ".".join(map(_quote, name.split(".")))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Scalar) -> str:
    if value is None or isinstance(value, bool | int | float | Decimal):
        return "NULL" if value is None else str(value)
    return "'" + value.replace("'", "''") + "'"
