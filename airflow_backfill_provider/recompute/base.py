"""What plan, trial and stage ask of a transform, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.transform import Finding
from airflow_backfill_provider.warehouses.base import Column, Recompute, StagedPartition, Target, Versions, Warehouse
from airflow_backfill_provider.windows import Partition


class PlannedEra(Frozen):
    """The partitions that one SQL file, or the code, recomputes."""

    file: str
    label: str
    """First and last key."""
    partitions: int
    first_key: str
    first_sql: str
    """The first partition's rendered SQL, as it will run; empty where code recomputes it."""
    code: str = ""
    """The text of the code; empty where SQL recomputes it."""

    @property
    def title(self) -> str:
        """What :attr:`text` is."""
        return f"Code of {self.file}" if self.code else f"SQL of the first partition, {self.first_key}"

    @property
    def text(self) -> str:
        """What a reviewer reads of it."""
        return self.code or self.first_sql


class Recomputer(Protocol):
    """Recomputes partitions of one spec."""

    unproven: tuple[str, ...]
    """Sentences the plan prints: what this way of recomputing leaves open."""

    def plan(self, partitions: Sequence[Partition]) -> PlannedEra:
        """What recomputes these partitions, which are of one era.

        :raises TransformRefused: it cannot.
        """
        ...

    def fits(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[ColumnFit, ...]:
        """How its columns land in the target's; empty where only a run can tell.

        :raises TransformRefused: they do not fit.
        """
        ...

    def surplus(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[Column, ...]:
        """The columns it yields that the target has no place for; none where only a run can tell."""
        ...

    def findings(self, partition: Partition, warehouse: Warehouse) -> tuple[Finding, ...]:
        """What to be wary of in it."""
        ...

    def recompute(self, partitions: Sequence[Partition], interval: Partition, versions: Versions) -> Recompute:
        """One recompute of the partitions, which lie side by side; ``interval`` spans them all."""
        ...

    def unrepeatable(self, partition: Partition) -> tuple[Finding, ...]:
        """What in it may give other rows when it runs again."""
        ...

    def again(self, recompute: Recompute, suspects: Sequence[Finding]) -> tuple[Recompute, ...]:
        """Ways to run it again over the same source, the most searching first; the last is how it ran."""
        ...

    def afterwards(self, recompute: Recompute, staged: Sequence[StagedPartition]) -> Recompute | None:
        """The run that would find these rows published; None when it reads nothing that is known to be the target."""
        ...
