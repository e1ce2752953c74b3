"""Work that is done elsewhere, by a DAG run or a job: submitted under a name, looked at, and cancelled by it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.recompute.base import PlannedEra
from airflow_backfill_provider.recompute.code import CodeRecomputer
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import ElsewhereTransform
from airflow_backfill_provider.warehouses.base import Landing, Recompute, Target, Versions, Warehouse
from airflow_backfill_provider.windows import Partition, Value


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    is_over: bool
    failure: str = ""
    """Of one that is over and did not go well, what is known of it."""


class Elsewhere(Protocol):
    """Where the runs are.

    Each call raises :class:`~airflow_backfill_provider.errors.CodeFailed` when it is refused, and
    :class:`~airflow_backfill_provider.errors.ConnectionLost` when nobody answers, which says nothing of the run.
    """

    def submit(self, name: str, told: Mapping[str, Any]) -> str:
        """Begin a run of this name; where there is one already, nothing is begun. The handle of it."""
        ...

    def find(self, name: str) -> str | None:
        """The handle of the run of this name, of which nobody knows whether it was begun; None where there is none."""
        ...

    def look(self, handle: str) -> Progress:
        """How far it is."""
        ...

    def cancel(self, handle: str) -> None:
        """End it; what it has written by then is not taken."""
        ...


class ElsewhereRecomputer(CodeRecomputer):
    """One run elsewhere per partition; see :class:`~airflow_backfill_provider.recompute.Recomputer`."""

    def __init__(self, spec: BackfillSpec, transform: ElsewhereTransform) -> None:
        super().__init__(transform)
        self._spec, self._runs = spec, transform.runs
        self.unproven = (
            f"What the {transform.origin} reads and does is not known: the versions of its sources are not pinned, nothing can be said "
            "of its columns and bounds before it runs, and a change of it is not noticed.",
            f"What the {transform.origin} writes to other tables and systems is not seen; published rows of the partitions and of "
            "those beside them are looked at before and after each run.",
        )

    def fits(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[ColumnFit, ...]:
        if why := warehouse.capabilities.takes_nothing_from_elsewhere:
            raise TransformRefused(f"{self._transform.origin}: {why} Nothing was staged.")
        if self._runs.dialect not in ("", warehouse.capabilities.dialect):
            raise TransformRefused(
                f"The {self._transform.origin} can put its rows into a table of {self._runs.dialect} alone, and compute.conn_id leads to "
                f"{warehouse.capabilities.engine}. Nothing was staged. Name the connection of the target's own warehouse, or use "
                "transform.dag."
            )
        return ()

    def text(self, first: Partition) -> str:
        told = {**self._runs.extras, **told_of(first, "…"), "staging_…": "where the rows go"}
        return f"{self._runs.call}\n{json.dumps(told, indent=2, ensure_ascii=False)}"

    def recompute(self, partitions: Sequence[Partition], interval: Partition, versions: Versions) -> Recompute:
        return Recompute(tuple(partitions), fill=_nobody, keep_unmatched=self._spec.publish.keep_unmatched)


def told_of(partition: Partition, backfill_id: str) -> dict[str, str]:
    """What a run is told of its partition; instants are ISO 8601 in UTC, the end exclusive."""
    told = {"backfill_id": backfill_id, "partition_key": partition.key}
    if isinstance(partition.span, Value):
        return told | {"partition_value": partition.span.text}
    return told | {
        "partition_start": partition.span.start.isoformat(),
        "partition_end": partition.span.end.isoformat(),
    }


def _nobody(landing: Landing) -> None:
    raise AssertionError("steps.elsewhere puts the run in the place of this")
