"""A plan: spec and request plus the facts read at scope time, frozen. What is printed is what is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflow_backfill_provider.answers import Answer
from airflow_backfill_provider.batches import MOST_TASKS, Batch, deal
from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.errors import PlanUnreadable, RequestError, SpecError
from airflow_backfill_provider.range_evidence import RangeFound
from airflow_backfill_provider.recompute import PlannedEra, Recomputer, recomputer_of
from airflow_backfill_provider.resolution import Resolution, Skipped
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.hashes import digest, intent_hash, spec_hash
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.unfit_rows import fitting
from airflow_backfill_provider.warehouses.base import (
    ChildSwap,
    Fingerprint,
    Target,
)
from airflow_backfill_provider.windows import Grain, Partition, Window, describe, parse_key, periods


class LiveReading(Frozen):
    """What the partitions that are not over were at the moment their range was claimed, just before they were staged."""

    baseline: Mapping[str, Fingerprint]
    source_rows: Mapping[str, int]
    source_newest: Mapping[str, str] = {}
    arrived: str
    """As :attr:`Plan.arrived`, with that moment in it."""
    source_versions: Mapping[str, int]
    affected: Mapping[str, int] = {}
    """As :attr:`Plan.affected`; empty without a condition, and where an earlier version read them."""


_TARGET = TypeAdapter(Target)


class Plan(Frozen):
    """Everything a run needs to know, and nothing that it could look up differently later."""

    backfill_id: str
    spec: BackfillSpec
    request: Request
    """As it was written; what it came to is ``resolved`` and ``partitions``."""
    resolved: Window | None
    """The range that the request meant when the plan was made; None when it lists its partitions."""
    asked: Window | None = None
    """The range that was asked for, where ``expand`` made a wider one of it; a person approves that."""
    notes: tuple[str, ...]
    """What was resolved otherwise than written; among the warnings too."""
    planned_at: datetime
    engine: str
    dialect: str
    target: Target
    partitions: tuple[Partition, ...]
    skipped: tuple[Skipped, ...]
    baseline: Mapping[str, Fingerprint]
    affected: Mapping[str, int] = {}
    """Published rows of each partition that ``range.affected_when`` is true for; empty without one."""
    range_found: RangeFound | None = None
    """Where the number of ``range.evidence`` changes its level; None without one."""
    control: Mapping[str, Fingerprint] = {}
    """What was published of each control partition at scope time; empty without a control period."""
    source_rows: Mapping[str, int]
    """Rows of ``spec.source`` per partition at scope time, of those that had arrived; empty without a source."""
    source_newest: Mapping[str, str] = {}
    """The newest arrival among those rows per partition, as text; without a key where there is none. In no hash: it
    decides nothing."""
    arrived: str = ""
    """SQL that is true for the rows of the source that had arrived when the plan was made; empty without a cutoff."""
    source_versions: Mapping[str, int] = {}
    """The version of each table that the SQL or the spec reads, by its name; every partition that is staged from
    now on reads that one. Empty where the engine keeps no versions."""
    earlier_versions: Mapping[str, Mapping[str, int]] = {}
    """The versions that partitions were staged from before a rebase left them as they were, by key. In no hash."""
    rows_outside: int
    """Published rows whose partition column is NULL: in no partition, never touched."""
    schema_section: tuple[ColumnFit, ...] = ()
    """How the transform's columns land in the target's; of every file that the range touches."""
    discarded: tuple[str, ...] = ()
    """Columns that the transform yields and the target has no place for; with ``schema.mode: discard_columns`` left out."""
    eras: tuple[PlannedEra, ...]
    """What recomputes the range, in its order; one, unless ``transform.eras`` has several files there."""
    rows_per_second: int
    replaced_per_second: int | None
    swap: ChildSwap | None = None
    """With ``publish.swap``, the children of the table that are exchanged."""
    answers: tuple[Answer, ...]
    warnings: tuple[str, ...]
    not_proven: tuple[str, ...]
    code_revision: str = ""
    """What the deployment says of its own code; recorded, in no hash."""
    most_tasks: int = MOST_TASKS
    """How many mapped tasks Airflow allows where the plan was made, or gone on with; in no hash."""
    live_reading: LiveReading | None = None
    """The newest facts of :attr:`live`, which are in no hash; None until they are claimed."""

    @property
    def live(self) -> tuple[Partition, ...]:
        """The partitions that were not over when the plan was made: claimed, read and staged after all others."""
        return tuple(partition for partition in self.partitions if not partition.is_over(self.planned_at))

    @property
    def settled(self) -> tuple[Partition, ...]:
        """The partitions that were over when the plan was made."""
        return tuple(partition for partition in self.partitions if partition.is_over(self.planned_at))

    def with_live(self, reading: LiveReading) -> Plan:
        """The plan with what its live partitions are by now."""
        facts = {
            "baseline": {**self.baseline, **reading.baseline},
            "source_rows": {**self.source_rows, **reading.source_rows},
            "source_newest": {**self.source_newest, **reading.source_newest},
            "affected": {**self.affected, **reading.affected},
            "live_reading": reading,
        }
        return self.model_copy(update=facts)

    def as_read(self, partitions: Sequence[Partition]) -> Plan:
        """The plan as it reads the sources of these partitions: of live ones as they were when those were claimed."""
        if self.live_reading is None or set(self.live).isdisjoint(partitions):
            return self
        now = {"arrived": self.live_reading.arrived, "source_versions": self.live_reading.source_versions}
        return self.model_copy(update=now)

    def versions_read(self, partition: Partition) -> Mapping[str, int]:
        """The version of each source that what is staged of the partition was computed from."""
        return self.earlier_versions.get(partition.key, self.as_read([partition]).source_versions)

    @property
    def resolution(self) -> Resolution:
        """What the request came to when the plan was made."""
        return Resolution(self.partitions, self.skipped, self.resolved, self.asked, self.notes)

    @property
    def recomputer(self) -> Recomputer:
        """What recomputes the partitions as they were planned."""
        kept = self.target.column_names if self.discarded else ()
        leaves_out = self.spec.schema_gate.mode == "discard_rows"
        return recomputer_of(
            self.spec, self.dialect, self.arrived, kept, fitting(self.target, self.dialect) if leaves_out else ""
        )

    @property
    def whole_recomputer(self) -> Recomputer:
        """The same without leaving out any row."""
        return recomputer_of(self.spec, self.dialect, self.arrived)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every partition key, in order."""
        return tuple(partition.key for partition in self.partitions)

    @property
    def first_sql(self) -> str:
        """The first partition's rendered SQL, as it will run; empty when there is no partition."""
        return self.eras[0].first_sql if self.eras else ""

    @property
    def baseline_rows(self) -> int:
        """Published rows of the whole range at scope time."""
        return sum(fingerprint.rows for fingerprint in self.baseline.values())

    @property
    def expected_rows(self) -> int:
        """How many rows the backfill is expected to stage: as many as are published, or the source's where none are."""
        return self.expected_rows_of(self.keys)

    def expected_rows_of(self, keys: Iterable[str]) -> int:
        """The same of some partitions."""
        return sum(self.baseline[key].rows or self.source_rows.get(key, 0) for key in keys)

    @property
    def spec_hash(self) -> str:
        """The hash of the whole spec; any edit changes it."""
        return spec_hash(self.spec)

    @property
    def intent_hash(self) -> str:
        """The hash of what decides a staged result; governs reuse of staged work."""
        return intent_hash(self.spec, self.keys)

    @property
    def plan_hash(self) -> str:
        """The hash of intent and facts; governs approval."""
        live = {partition.key for partition in self.live}  # whose facts are not known yet
        baseline = {key: mark for key, mark in self.baseline.items() if key not in live}
        facts = {
            "intent": self.intent_hash,
            "spec": self.spec_hash,
            "target": _TARGET.dump_python(self.target, mode="json"),
            "baseline": {key: [mark.rows, mark.digest, mark.method] for key, mark in baseline.items()},
            "source_rows": {key: rows for key, rows in self.source_rows.items() if key not in live},
            "source_versions": dict(self.source_versions),
            "arrived": self.arrived,
        }
        if self.control:
            facts["control"] = {key: [mark.rows, mark.digest, mark.method] for key, mark in self.control.items()}
        if self.swap is not None:
            facts["swap"] = [list(self.swap.children), list(self.swap.losses)]
        return digest(facts)

    @property
    def trial_partition(self) -> Partition:
        """The partition that is tried before the others.

        The spec's, where the range holds it; or else the one with the most published rows, and where none has any, with
        the most of the source, among those that are over.
        """

        def weight(partition: Partition) -> tuple[bool, int, int]:
            key = partition.key
            return partition.is_over(self.planned_at), self.baseline[key].rows, self.source_rows.get(key, 0)

        if self.spec.transform.is_chained:
            return self.partitions[0]  # every other one needs those before it
        written = written_trial(self.spec)
        return next((one for one in self.partitions if one == written), None) or max(self.partitions, key=weight)

    def batches(self) -> tuple[Batch, ...]:
        """How the partitions are dealt out to mapped tasks; without the live ones, unless there are no others.

        Those are staged where the range is validated.
        """
        if self.spec.transform.is_chained:
            return (Batch(describe(self.partitions), self.keys),) if self.partitions else ()
        compute = self.spec.compute
        return deal(
            self.settled or self.partitions,
            max_concurrency=compute.max_concurrency,
            partitions_per_task=compute.partitions_per_task,
            estimated_seconds=self.baseline_rows / self.rows_per_second,
            most_tasks=self.most_tasks,
        )

    def units(self) -> tuple[tuple[Partition, ...], ...]:
        """The partitions that are published together, in the order in which they are."""
        unit = self.spec.publish.unit
        if unit == "range":
            return (self.partitions,)
        return periods(self.partitions, Grain(unit), self.spec.target.timezone)

    @property
    def write_block(self) -> timedelta:
        """How long the longest commit is estimated to keep other writers out of the table."""
        return self._write_block(self.units())

    def _write_block(self, units: Sequence[Sequence[Partition]]) -> timedelta:
        if self.replaced_per_second is None:
            return timedelta()
        if self.swap is not None:
            return timedelta(seconds=self.baseline_rows / self.swap.reread_per_second)
        if self.target.version is not None:
            rows = self.target.version.rows
        else:
            rows = max((sum(self._rows_to_replace(one.key) for one in unit) for unit in units), default=0)
        return timedelta(seconds=rows / self.replaced_per_second)

    def _rows_to_replace(self, key: str) -> int:
        """Of the old rows and the expected new ones, whichever are more."""
        return max(self.baseline[key].rows, self.source_rows.get(key, 0))

    def require_short_write_block(self, find_swap: Callable[[], ChildSwap | None]) -> None:
        """Refuse a plan that keeps other writers out for longer than the spec allows.

        :param find_swap: what an exchange of the table's own partitions would come to, where there can be one.
        :raises SpecError: naming the estimate, and what would stay below: an exchange, or the longest unit.
        """
        limit = self.spec.publish.max_write_block
        if limit is None or self.write_block <= limit:
            return
        target = self.spec.target
        units = [unit for unit in (Grain.YEAR, Grain.MONTH, Grain.WEEK, Grain.DAY) if unit.holds(target.grain)]
        fitting = [one for one in units if self._write_block(periods(self.partitions, one, target.timezone)) <= limit]
        ways = []
        if self.swap is None:
            exchanged = self.model_copy(update={"swap": find_swap()})
            if exchanged.swap is not None and exchanged.write_block <= limit:
                ways.append("publish.swap: true, which exchanges whole partitions of the table in one commit")
            if fitting:
                ways.append(f"publish.unit: {fitting[0]}, which publishes the range in several commits of less")
        raise SpecError(
            f"The publish would keep other writers out of {self.target.table} for about {_seconds(self.write_block)} in one commit, "
            f"and publish.max_write_block is {_seconds(limit)}. Nothing was done. "
            + (
                f"Set {'; or '.join(ways)}."
                if ways
                else "No unit is short enough: raise max_write_block, or publish when nobody writes."
            )
        )

    def require_budget(self) -> None:
        """Refuse a plan that is expected to stage more rows than the spec allows.

        :raises SpecError: naming both numbers.
        """
        limit = self.spec.compute.max_rows
        if limit is not None and self.expected_rows > limit:
            raise SpecError(
                f"The {len(self.partitions)} partitions are expected to have {self.expected_rows:,} rows, and compute.max_rows is "
                f"{limit:,}. Nothing was done. Ask for fewer partitions, or raise max_rows."
            )

    def select(self, keys: Sequence[str]) -> tuple[Partition, ...]:
        """The partitions with these keys, in the plan's order.

        :raises RequestError: a key is not of this plan.
        """
        wanted = set(keys)
        if unknown := wanted - set(self.keys):
            raise RequestError(
                f"{', '.join(sorted(unknown)[:5])} is not among the {len(self.keys)} planned partitions."
            )
        return tuple(partition for partition in self.partitions if partition.key in wanted)

    def document(self) -> dict[str, Any]:
        """The plan as plain JSON values, for the ledger."""
        return self.model_dump(mode="json")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Plan:
        """The plan that :meth:`document` wrote.

        :raises PlanUnreadable: it is not as this version writes it.
        """
        try:
            return cls.model_validate(document)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "document"
            raise PlanUnreadable(
                f"The plan of backfill {document.get('backfill_id', 'of unknown id')!r} in the ledger cannot be read: {where}: "
                f"{first['msg']}. Nothing was changed. Use the version of the provider that wrote it."
            ) from exc


def written_trial(spec: BackfillSpec) -> Partition | None:
    """The partition that the spec wants tried; None when it leaves that open."""
    target, key = spec.target, spec.trial.partition
    return None if key is None else parse_key(key, target.grain, target.timezone)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():,.1f} s"
