"""Tests of one row in a spec's own SQL, as columns beside the row's own: so that many statements can count them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_backfill_provider.spec.metric import Metric, MetricKind, Scalar
from airflow_backfill_provider.warehouses.predicate import row_expression
from airflow_backfill_provider.warehouses.relational.dialect import Dialect


class Flags:
    """What some metrics test of each row; without any, tables are read as they are.

    A user's names are resolved against the table alone, whatever a statement calls its columns.

    :param types: the type of each column, where it is known.
    :param locate: the SQL name of another table that a metric reads.
    """

    def __init__(
        self, dialect: Dialect, metrics: Sequence[Metric], types: Mapping[str, str], locate: Callable[[str], str]
    ) -> None:
        self._dialect = dialect
        self._types = types
        self._tests: dict[Metric, list[str]] = {metric: _tests(dialect, metric, locate) for metric in metrics}
        distinct = dict.fromkeys(test for tests in self._tests.values() for test in tests)
        self._aliases = {test: f"safe_backfill_{number}" for number, test in enumerate(distinct)}

    def names(self, metric: Metric) -> list[str]:
        """The columns that hold the metric's tests: ``where`` first, then the test that rows fail."""
        return [self._aliases[test] for test in self._tests[metric]]

    def table(self, name: str) -> str:
        """The table with the tests as columns."""
        if not self._aliases:
            return name
        tests = ", ".join(f"({test}) AS {alias}" for test, alias in self._aliases.items())
        return f"(SELECT *, {tests} FROM {name} AS own)"

    def comparable(self, value: Scalar, column: str) -> str:
        """The literal as the column compares with it: as text with text, which could not be compared with a number."""
        if self._dialect.is_text(self._types.get(column)) and not isinstance(value, str):
            return self._dialect.spelling.text_literal(str(value).lower() if isinstance(value, bool) else str(value))
        return self._dialect.spelling.literal(value)


def _tests(dialect: Dialect, metric: Metric, locate: Callable[[str], str]) -> list[str]:
    tests = [row_expression(metric.where, dialect.name)] if metric.where else []
    if metric.kind is MetricKind.UNTRUE:
        tests.append(f"({row_expression(metric.expression, dialect.name)}) IS NOT TRUE")
    if metric.kind is MetricKind.ORPHANS:
        column, field = map(dialect.spelling.quote, (metric.columns[0], metric.to_field))
        # Without its alias, a field that the other table lacks would be looked for in this one.
        known = f"SELECT t.{field} FROM {locate(metric.to_table)} AS t WHERE t.{field} IS NOT NULL"
        tests.append(f"{column} IS NOT NULL AND {column} NOT IN ({known})")
    return tests
