"""A transform that is a SELECT in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_backfill_provider.column_fit import ColumnFit, fit, surplus
from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.recompute.base import PlannedEra
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import (
    ORDER_DEPENDENT,
    Finding,
    lint,
    only,
    over,
    prepare,
    reordered,
    sql_of,
    unrepeatable,
    where,
)
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    Column,
    Recompute,
    StagedPartition,
    Target,
    Versions,
    Warehouse,
)
from airflow_backfill_provider.windows import Partition, describe


class SqlRecomputer:
    """The scheduled pipeline's SQL, whose write is redirected; see :class:`~airflow_backfill_provider.recompute.Recomputer`."""

    def __init__(
        self,
        spec: BackfillSpec,
        dialect: str,
        arrived: str,
        kept: Sequence[str] = (),
        fitting: str = "",
        *,
        cautions: Sequence[str] = (),
        unproven: Sequence[str] = (),
    ) -> None:
        """``cautions`` are warnings of the plan that are true of every partition."""
        self.unproven = tuple(unproven)
        self._cautions = tuple(Finding("dbt", sentence) for sentence in cautions)
        self._spec, self._dialect, self._arrived = spec, dialect, arrived
        self._kept, self._fitting = kept, fitting

    def plan(self, partitions: Sequence[Partition]) -> PlannedEra:
        first = partitions[0]
        return PlannedEra(
            file=sql_of(self._spec, first).origin,
            label=describe(partitions),
            partitions=len(partitions),
            first_key=first.key,
            first_sql=self._select(first),
        )

    def fits(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[ColumnFit, ...]:
        produced = warehouse.select_columns(era.first_sql)
        may_discard = self._spec.schema_gate.mode == "discard_columns"
        return fit(target, produced, warehouse.lossless, era.file, discard_columns=may_discard)

    def surplus(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[Column, ...]:
        return surplus(target, warehouse.select_columns(era.first_sql))

    def findings(self, partition: Partition, warehouse: Warehouse) -> tuple[Finding, ...]:
        return (*self._cautions, *lint(self._spec, partition, self._dialect, _columns_of(warehouse)))

    def recompute(self, partitions: Sequence[Partition], interval: Partition, versions: Versions) -> Recompute:
        return Recompute(
            tuple(partitions), self._select(interval), self._spec.publish.keep_unmatched, versions=versions
        )

    def unrepeatable(self, partition: Partition) -> tuple[Finding, ...]:
        return unrepeatable(self._spec, partition, self._dialect)

    def again(self, recompute: Recompute, suspects: Sequence[Finding]) -> tuple[Recompute, ...]:
        if {finding.code for finding in suspects} & ORDER_DEPENDENT:
            shuffled = reordered(recompute.select, self._dialect)
            if shuffled is not None:
                return replace(recompute, select=shuffled), recompute
        return (recompute,)

    def afterwards(self, recompute: Recompute, staged: Sequence[StagedPartition]) -> Recompute | None:
        select = over(recompute.select, self._spec.target.table, AFTERWARDS, self._dialect)
        return None if select is None else replace(recompute, select=select, over=tuple(staged))

    def _select(self, interval: Partition) -> str:
        select = prepare(self._spec, interval, self._dialect, self._arrived)
        select = only(select, self._kept, self._dialect) if self._kept else select
        return where(select, self._fitting) if self._fitting else select


def _columns_of(warehouse: Warehouse) -> Callable[[str], tuple[str, ...]]:
    """The columns of a table by its name in SQL; none of what is no table, such as a column that is unnested."""

    def ask(table: str) -> tuple[str, ...]:
        try:
            return tuple(column.name for column in warehouse.select_columns(f"SELECT * FROM {table}"))  # noqa: S608
        except TransformRefused:
            return ()

    return ask
