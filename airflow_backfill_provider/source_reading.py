"""The spec's source as a plan reads it: its rows in the target's partitions, as far as they had arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.recompute import PlannedEra
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.spec.model import BackfillSpec, SourceSpec
from airflow_backfill_provider.warehouses.base import Source, Target, Versions, Warehouse
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.windows import Grain, Partition


@dataclass(frozen=True)
class SourceReading:
    """One look at the source. A spec without a source has no rows and no arrivals."""

    spec: BackfillSpec
    warehouse: Warehouse
    target: Target
    arrived: str
    """SQL that is true for the rows that count as arrived; empty for all."""
    versions: Versions
    """At which to read it; without any, at the latest."""

    def rows(self, partitions: Sequence[Partition]) -> dict[str, int]:
        """The source's rows that had arrived, by partition key.

        :raises SpecError: the source cannot be cut into the partitions.
        """
        return self._counted(partitions, ROWS)

    def newest_arrivals(self, partitions: Sequence[Partition]) -> dict[str, str]:
        """The newest arrival among the same rows as text, an instant in UTC; empty where the spec names no column for it.

        :raises SpecError: as :meth:`rows`, or there is no such column.
        """
        source = self.spec.source
        if source is None or source.arrival is None:
            return {}
        found = self._measured(source, partitions, Metric(MetricKind.MAX, (source.arrival,)))
        return {key: _instant(value) for key, value in found.items() if value is not None}

    def require_arrivals(self, partitions: Sequence[Partition]) -> None:
        """:raises SpecError: with a cutoff, a row of the source has no arrival, so that it is neither in nor out."""
        source = self.spec.source
        if source is None or source.cutoff is None:
            return
        column = source.cutoff.column
        counted = self._counted(partitions, Metric(MetricKind.NULLS, (column,)))
        if rows := [f"{key} ({count} rows)" for key, count in counted.items() if count]:
            raise SpecError(
                f"source {source.table} has rows without {column}, which may have arrived before the plan or after it: "
                f"{', '.join(rows[:5])}. Fill the column, or leave source.cutoff out."
            )

    def _counted(self, partitions: Sequence[Partition], count: Metric) -> dict[str, int]:
        source = self.spec.source
        found = {} if source is None else self._measured(source, partitions, count)
        return {key: int(value or 0) for key, value in found.items()}

    def _measured(self, source: SourceSpec, partitions: Sequence[Partition], metric: Metric) -> dict[str, Scalar]:
        if not partitions:
            return {}
        place = source_rows(source, self.spec, self.arrived, self.versions)
        try:
            measured = self.warehouse.measure(self.target, place, partitions, [metric])
        except SpecError as error:
            raise SpecError(f"source {source.table} by {source.partition_by}: {error}") from error
        return {key: values[metric] for key, values in measured.items()}


def source_rows(source: SourceSpec, spec: BackfillSpec, arrived: str, versions: Versions) -> Source:
    """The rows of the source that had arrived, cut like the target's by a column of its own."""
    reading = Reading(
        spec.target.timezone, source.column_timezone, source.column_format, spec.target.grain is Grain.LIST
    )
    return Source(source.table, source.partition_by, reading, arrived, versions)


def latest_versions(spec: BackfillSpec, warehouse: Warehouse, eras: Sequence[PlannedEra]) -> dict[str, int]:
    """The version that each source has at this moment; empty where the engine keeps none."""
    selects = [era.first_sql for era in eras if era.first_sql]
    return warehouse.source_versions(selects, [spec.source.table] if spec.source else [])


def _instant(value: object) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    return str(value)
