"""What every transform that is no SQL answers alike: only its rows tell what it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.recompute.base import PlannedEra
from airflow_backfill_provider.spec.transforms import TransformSpec
from airflow_backfill_provider.transform import Finding
from airflow_backfill_provider.warehouses.base import Column, Recompute, StagedPartition, Target, Versions, Warehouse
from airflow_backfill_provider.windows import Partition, describe


class CodeRecomputer(ABC):
    """See :class:`~airflow_backfill_provider.recompute.Recomputer`."""

    unproven: tuple[str, ...] = ()

    def __init__(self, transform: TransformSpec) -> None:
        self._transform = transform

    @abstractmethod
    def text(self, first: Partition) -> str:
        """What a reviewer reads of it."""

    @abstractmethod
    def fits(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[ColumnFit, ...]:
        """Nothing: the rows land in a table of the target's own types, and what does not fit is an error there.

        :raises TransformRefused: there is no such table on this engine.
        """

    @abstractmethod
    def recompute(self, partitions: Sequence[Partition], interval: Partition, versions: Versions) -> Recompute:
        """One run of the code for these partitions."""

    def plan(self, partitions: Sequence[Partition]) -> PlannedEra:
        return PlannedEra(
            file=self._transform.origin,
            label=describe(partitions),
            partitions=len(partitions),
            first_key=partitions[0].key,
            first_sql="",
            code=self.text(partitions[0]),
        )

    def surplus(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[Column, ...]:
        """None: only its rows tell."""
        return ()

    def findings(self, partition: Partition, warehouse: Warehouse) -> tuple[Finding, ...]:
        return ()

    def unrepeatable(self, partition: Partition) -> tuple[Finding, ...]:
        return ()

    def again(self, recompute: Recompute, suspects: Sequence[Finding]) -> tuple[Recompute, ...]:
        return (recompute,)

    def afterwards(self, recompute: Recompute, staged: Sequence[StagedPartition]) -> Recompute | None:
        """None: what it reads is not known."""
        return None
