"""A plan: spec and request plus the facts read at scope time, frozen. What is printed is what is executed.

:func:`build_plan` reads and never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter, ValidationError

from airflow_backfill_provider.affected import count_affected, narrowed
from airflow_backfill_provider.answers import Answer, answers, strict_violations
from airflow_backfill_provider.batches import Batch, deal
from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.control_period import published_control
from airflow_backfill_provider.cutoff import arrived_by
from airflow_backfill_provider.errors import PlanUnreadable, RequestError, SpecError
from airflow_backfill_provider.new_columns import grown, growth_cautions
from airflow_backfill_provider.range_evidence import RangeFound, look_at_range, range_cautions
from airflow_backfill_provider.recompute import PlannedEra, Recomputer, recomputer_of, with_compiled_model
from airflow_backfill_provider.resolution import Resolution, Skipped, resolve
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.hashes import digest, intent_hash, spec_hash
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar
from airflow_backfill_provider.spec.model import BackfillSpec, SourceSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.spec.transforms import SqlTransform
from airflow_backfill_provider.spec_fit import checkable_constraints, require_fit
from airflow_backfill_provider.transform import may_read_table, other_tables, over, reads_table
from airflow_backfill_provider.unfit_rows import fitting, of_one_row
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    Capabilities,
    ChildSwap,
    Fingerprint,
    Published,
    Source,
    Target,
    Versions,
    Warehouse,
)
from airflow_backfill_provider.warehouses.clocks import Reading, require_cuttable
from airflow_backfill_provider.windows import Grain, Partition, Window, describe, parse_key, periods


class LiveReading(Frozen):
    """What the partitions that are not over were at the moment their range was claimed, just before they were staged."""

    baseline: Mapping[str, Fingerprint]
    source_rows: Mapping[str, int]
    source_newest: Mapping[str, str] = {}
    arrived: str
    """As :attr:`Plan.arrived`, with that moment in it."""
    source_versions: Mapping[str, int]


class Plan(Frozen):
    """Everything a run needs to know, and nothing that it could look up differently later."""

    backfill_id: str
    spec: BackfillSpec
    request: Request
    """As it was written; what it came to is ``resolved`` and ``partitions``."""
    resolved: Window | None
    """The range that the request meant when the plan was made; None when it lists its partitions."""
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
    """The version of each table that the SQL or the spec reads, by its name; every partition reads that one. Empty where
    the engine keeps no versions."""
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
            "live_reading": reading,
        }
        return self.model_copy(update=facts)

    def as_read(self, partitions: Sequence[Partition]) -> Plan:
        """The plan as it reads the sources of these partitions: of live ones as they were when those were claimed."""
        if self.live_reading is None or set(self.live).isdisjoint(partitions):
            return self
        now = {"arrived": self.live_reading.arrived, "source_versions": self.live_reading.source_versions}
        return self.model_copy(update=now)

    @property
    def resolution(self) -> Resolution:
        """What the request came to when the plan was made."""
        return Resolution(self.partitions, self.skipped, self.resolved, self.notes)

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
            "target": TypeAdapter(Target).dump_python(self.target, mode="json"),
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


def build_plan(
    spec: BackfillSpec,
    request: Request,
    warehouse: Warehouse,
    *,
    backfill_id: str,
    now: datetime,
    strict: bool = False,
    spans_hosts: str = "",
    code_revision: str = "",
    resolution: Resolution | None = None,
    pinned: Versions | None = None,
) -> Plan:
    """Resolve the range, read the facts, and freeze both; reads only.

    :param now: the aware instant that decides which partitions are over.
    :param resolution: what the request came to earlier; by default it is resolved at ``now``.
    :param pinned: the versions of sources that were resolved earlier; by default the latest.
    :param spans_hosts: the name of the executor, when it may run each task on another host.
    :param strict: refuse a plan that leaves one of the five questions to a default.
    :raises RequestError: the range cannot be planned.
    :raises SpecError: the table or a column is not there, or cannot be worked with.
    :raises TransformRefused: the transform cannot be redirected, or its columns do not fit the target's.
    :raises CodeFailed: dbt could not compile the model.
    """
    asked = resolution or resolve(spec, request, now)
    capabilities = warehouse.capabilities
    if spec.publish.mechanism not in capabilities.mechanisms:
        raise SpecError(
            f"publish.mechanism {spec.publish.mechanism} is not supported by {capabilities.engine}; "
            f"supported: {', '.join(sorted(capabilities.mechanisms))}."
        )
    _require_one_host(spec, capabilities, spans_hosts)
    if strict and (open_questions := strict_violations(spec, request)):
        raise SpecError(
            "policy = strict refuses a plan that leaves a question to a default: " + "; ".join(open_questions) + "."
        )
    spec = with_compiled_model(spec, capabilities.dialect)
    described = warehouse.describe(spec.target.table, spec.target.partition_by, spec.target.key, target_reading(spec))
    _require_swappable(spec, described)
    _require_mergeable(spec, described)
    target, unchecked = checkable_constraints(described, capabilities.dialect)
    cutoff = arrived_by(spec.source, warehouse, now)
    recomputer = recomputer_of(spec, capabilities.dialect, cutoff)
    target = grown(
        spec,
        target,
        (
            column
            for _, members in groupby(asked.partitions, key=spec.era_of)
            for column in recomputer.surplus(recomputer.plan(tuple(members)), target, warehouse)
        ),
    )
    growth = growth_cautions(target, warehouse)
    require_fit(spec, target, warehouse)
    _require_cuttable(target, asked.partitions)
    affected = count_affected(spec, warehouse, target, asked.partitions)
    resolution = resolution or narrowed(asked, spec, affected)
    partitions, skipped = resolution.partitions, resolution.skipped
    found = look_at_range(spec, warehouse, target, asked.partitions, now)
    swap = warehouse.plan_swap(target, partitions) if spec.publish.swap and partitions else None
    _require_hashable(target)
    warnings = [
        *resolution.notes,
        *_cautions(spec, partitions, skipped),
        *_live_cautions([one.key for one in partitions if not one.is_over(now)], spec),
        *_swap_cautions(target),
        *_child_cautions(swap),
        *growth,
        *_host_cautions(spec, capabilities, spans_hosts),
        *unchecked,
        *range_cautions(spec, found, asked.partitions),
        *_column_cautions(spec),
        *_row_cautions(spec, target),
    ]
    eras: list[PlannedEra] = []
    fits: list[ColumnFit] = []
    discarded: list[str] = []
    for members in (tuple(of_era) for _, of_era in groupby(partitions, key=spec.era_of)):
        era = recomputer.plan(members)
        _require_order(spec, era, capabilities.dialect)
        _require_one_name(spec, era, target, warehouse)
        eras.append(era)
        fits += recomputer.fits(era, target, warehouse)
        discarded += [column.name for column in recomputer.surplus(era, target, warehouse)]
        findings = recomputer.findings(members[0], warehouse)
        warnings += [f"{era.file}, {finding}" if spec.transform.stretches else str(finding) for finding in findings]
    _require_chain(spec, eras, [one.key for one in partitions if not one.is_over(now)], capabilities.dialect)
    versions = latest_versions(spec, warehouse, eras) | dict(pinned or {})
    if partitions:
        warnings += warehouse.source_cautions(versions, since=_first_run(partitions), needed=_may_take(spec))
        warnings += warehouse.receipt_cautions(target, needed=spec.rollback.keep_for)
    _require_arrivals(spec, warehouse, target, partitions, versions)
    if discarded:
        warnings.append(
            f"schema.mode discard_columns leaves out {', '.join(dict.fromkeys(discarded))}, which {target.table} does not have."
        )
    baseline = warehouse.fingerprint(target, Published(), partitions) if partitions else {}
    control = published_control(spec, warehouse, target, partitions, now) if partitions else {}
    require_unpublished(spec, baseline)
    if partitions and spec.kind != "first_load" and not any(mark.rows for mark in baseline.values()):
        warnings.append(f"{spec.target.table} has no row in the whole range: is this the right table and range?")
    outside = warehouse.outside_rows(target).null_partition
    if outside:
        warnings.append(
            f"{outside} published rows have no {target.partition_by}: they are in no partition and stay as they are."
        )
    plan = Plan(
        backfill_id=backfill_id,
        spec=spec,
        request=request,
        resolved=resolution.span,
        notes=resolution.notes,
        planned_at=now,
        engine=capabilities.engine,
        dialect=capabilities.dialect,
        target=target,
        partitions=partitions,
        skipped=skipped,
        baseline=baseline,
        affected={key: rows for key, rows in affected.items() if rows},
        range_found=found,
        control=control,
        source_rows=count_source(spec, warehouse, target, partitions, cutoff, versions),
        source_newest=newest_arrivals(spec, warehouse, target, partitions, cutoff, versions),
        source_versions=versions,
        arrived=cutoff,
        rows_outside=outside,
        schema_section=tuple(dict.fromkeys(fits)),
        discarded=tuple(dict.fromkeys(discarded)),
        eras=tuple(eras),
        rows_per_second=capabilities.rows_per_second,
        replaced_per_second=capabilities.replaced_per_second,
        swap=swap,
        answers=answers(spec, request),
        warnings=tuple(warnings),
        not_proven=(*NOT_PROVEN, *recomputer.unproven, *capabilities.unproven),
        code_revision=code_revision,
    )
    plan.require_short_write_block(lambda: _possible_swap(spec, warehouse, target, partitions))
    plan.require_budget()
    return plan


NOT_PROVEN = (
    "The new rule may be wrong as well: the checks prove how it was applied, not that it is the right one.",
    "A source that was updated in place cannot show history as it was.",
    "Exports and caches that consumers made of the old rows are theirs to rebuild.",
)


def written_trial(spec: BackfillSpec) -> Partition | None:
    """The partition that the spec wants tried; None when it leaves that open."""
    target, key = spec.target, spec.trial.partition
    return None if key is None else parse_key(key, target.grain, target.timezone)


def target_reading(spec: BackfillSpec) -> Reading:
    """How the spec says the target's partition column is to be read."""
    target = spec.target
    return Reading(target.timezone, target.column_timezone, target.column_format, target.grain is Grain.LIST)


def latest_versions(spec: BackfillSpec, warehouse: Warehouse, eras: Sequence[PlannedEra]) -> dict[str, int]:
    """The version that each source has at this moment; empty where the engine keeps none."""
    selects = [era.first_sql for era in eras if era.first_sql]
    return warehouse.source_versions(selects, [spec.source.table] if spec.source else [])


def source_rows(source: SourceSpec, spec: BackfillSpec, arrived: str, versions: Versions) -> Source:
    """The rows of the source that had arrived, cut like the target's by a column of its own."""
    reading = Reading(
        spec.target.timezone, source.column_timezone, source.column_format, spec.target.grain is Grain.LIST
    )
    return Source(source.table, source.partition_by, reading, arrived, versions)


_A_LONG_RUN = timedelta(days=1)
"""How long a backfill may take with its approvals and retries, unless the spec bounds it."""


def _may_take(spec: BackfillSpec) -> timedelta:
    return spec.compute.max_runtime or _A_LONG_RUN


def _first_run(partitions: Sequence[Partition]) -> datetime | None:
    """When the first of them could be computed for the first time; None of a list, where nothing tells."""
    return min((one.window.end for one in partitions if isinstance(one.span, Window)), default=None)


def _cautions(spec: BackfillSpec, partitions: Sequence[Partition], skipped: Sequence[Skipped]) -> list[str]:
    cautions = []
    if not spec.trial.enabled:
        cautions.append(
            "trial.enabled is false: nothing shows that a second run gives the same rows, or that the undo works."
        )
    elif spec.trial.partition is not None and written_trial(spec) not in partitions:
        cautions.append(
            f"trial.partition {spec.trial.partition} is not in the range: the partition with the most published rows is tried."
        )
    if spec.publish.unit != "range":
        cautions.append(
            f"publish.unit {spec.publish.unit}: each {spec.publish.unit} is published in a commit of its own, so the range is "
            "a mixture of new and old rows from the first commit to the last, and stays one when a later commit is refused."
        )
    if spec.compute.max_concurrency > 5:
        cautions.append(f"max_concurrency {spec.compute.max_concurrency} is above 5: watch the live pipeline.")
    if not spec.checks and not spec.comparisons:
        cautions.append("The spec has neither checks nor compare: only the built-in guards stand before the publish.")
    live = [skip.key for skip in skipped if skip.reason.startswith("not over")]
    if live:
        cautions.append(f"{len(live)} partitions are not over yet and left out: {', '.join(live[:3])}.")
    return cautions


def _live_cautions(live: Sequence[str], spec: BackfillSpec) -> list[str]:
    if not live:
        return []
    return [
        f"{', '.join(live[:3])} {'is' if len(live) == 1 else 'are'} still being written: claimed, read and staged after all others. Runs "
        f"that hold a guard of {spec.target.table} wait from then until the publish; what anyone else writes there meanwhile makes "
        "the publish refuse (TargetMoved)."
    ]


def _column_cautions(spec: BackfillSpec) -> list[str]:
    """New columns of which nobody said what a missing value means, and defaults of which nobody said why they are right."""
    cautions = []
    if silent := [name for name in spec.new_columns if name not in spec.schema_gate.columns]:
        cautions.append(
            f"Nothing says what it means that {', '.join(silent)} has no value: declare schema.columns.{silent[0]}.null_means, "
            "unknown, unavailable or default."
        )
    cautions += [
        f"schema.columns.{name}: a default stands where the value is not known, and readers cannot tell it from a real one. Say "
        "why that is right (because: …), or leave NULL there."
        for name, column in spec.schema_gate.columns.items()
        if column.null_means == "default" and column.because is None
    ]
    return cautions


def _row_cautions(spec: BackfillSpec, target: Target) -> list[str]:
    """Which rows are left out, where any may be.

    :raises SpecError: the table demands nothing of a row, so that none could be left out.
    """
    if spec.schema_gate.mode != "discard_rows":
        return []
    demanded = ", ".join(constraint.text for constraint in of_one_row(target))
    if not demanded:
        raise SpecError(
            f"schema.mode discard_rows leaves out rows that break a CHECK or a NOT NULL of {target.table}, which has neither. Give "
            "the table the constraint, or leave the rows out in the SQL."
        )
    return [
        f"schema.mode discard_rows leaves out rows that break {demanded} of {target.table}, at most {spec.schema_gate.max_discarded:,} "
        "of the range. To count them every partition is computed once more."
    ]


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():,.1f} s"


def _swap_cautions(target: Target) -> list[str]:
    version = target.version
    if version is None:
        return []
    return [
        f"view_swap costs the whole table, not the range: {version.table} has {version.rows:,} rows, which are written once more "
        "and kept until the old version expires.",
        f"A pipeline that writes {version.table} by name writes rows that nobody reads once {target.table} shows another table.",
        *version.not_carried,
    ]


def _child_cautions(swap: ChildSwap | None) -> list[str]:
    if swap is None:
        return []
    return [
        f"swap exchanges {len(swap.children)} partitions of the table ({', '.join(swap.children[:3])}"
        f"{', …' if len(swap.children) > 3 else ''}). Meanwhile nobody can read the table either, for about "
        f"{swap.locked_for.total_seconds():.2f} s; how long it was is in the result.",
        *swap.losses,
    ]


def _require_order(spec: BackfillSpec, era: PlannedEra, dialect: str) -> None:
    """:raises SpecError: the SQL reads the table that it rebuilds, and in which order is not said or cannot be kept."""
    table, transform = spec.target.table, spec.transform
    if not isinstance(transform, SqlTransform):
        return
    chained = transform.depends_on_past
    if not era.first_sql or chained is False or not may_read_table(era.first_sql, table, dialect):
        return
    if not reads_table(era.first_sql, table, dialect):
        raise SpecError(
            f"{era.file} reads a table that may be {table}, the one that it rebuilds, under another name. Write that name with every "
            "part in the SQL, so that it can be told; or set transform.depends_on_past: false where it is another table, or where the "
            "SQL reads no partition of it but its own. Nothing was done."
        )
    if chained is None:
        raise SpecError(
            f"{era.file} reads {table}, the table that it rebuilds. Computed side by side, each partition would read what is "
            "published of the others now, and not what they become. Set transform.depends_on_past: true where a partition is "
            "made from those before it: they are then computed one after the other, each from the staged rows of those before; "
            "or false where it reads no partition but its own. Nothing was done."
        )
    if chained and over(era.first_sql, table, AFTERWARDS, dialect) is None:
        raise SpecError(
            f"{era.file} reads {table} in a way that cannot be turned to staged rows. With transform.depends_on_past it needs to "
            "stand as a plain table in FROM or JOIN, without ONLY, sampling or a version. Nothing was done."
        )


def _require_one_name(spec: BackfillSpec, era: PlannedEra, target: Target, warehouse: Warehouse) -> None:
    """:raises SpecError: the SQL reads the table that it rebuilds by another name, where the order of partitions may matter."""
    transform = spec.transform
    if not isinstance(transform, SqlTransform) or not era.first_sql or transform.depends_on_past is False:
        return
    names = other_tables(era.first_sql, spec.target.table, warehouse.capabilities.dialect)
    if found := warehouse.aliases(target, names):
        table = spec.target.table
        raise SpecError(
            f"{era.file} reads {', '.join(found)}, which shows rows of {table}, the table that it rebuilds. Each partition would read "
            f"what is published of the others now, and not what they become. Read {table} itself, with transform.depends_on_past: "
            "true, where a partition is made from those before it; or set transform.depends_on_past: false where it reads no "
            "partition but its own. Nothing was done."
        )


def _require_chain(spec: BackfillSpec, eras: Sequence[PlannedEra], live: Sequence[str], dialect: str) -> None:
    """:raises SpecError: with depends_on_past, no SQL reads the table that it rebuilds, or a partition is still being written."""
    table = spec.target.table
    if not (spec.transform.is_chained and eras):
        return
    if live:
        raise SpecError(
            f"{', '.join(live[:3])} {'is' if len(live) == 1 else 'are'} still being written, and transform.depends_on_past makes each "
            "partition from those before it in one task, which would keep the scheduled pipeline out for as long as the whole chain "
            "takes. Nothing was done. Leave include_live out, and ask for that partition once it is over."
        )
    if all(over(era.first_sql, table, AFTERWARDS, dialect) is None for era in eras):
        raise SpecError(
            f"transform.depends_on_past is true, and {', '.join(sorted({era.file for era in eras}))} does not read {table}, so no partition "
            "would be made from the staged rows of those before it. Write that name, with every part, in FROM or JOIN, in the SQL of the "
            "first partition too, and not the name of a view of it; or leave depends_on_past out. Nothing was done."
        )


def _require_one_host(spec: BackfillSpec, capabilities: Capabilities, spans_hosts: str) -> None:
    """:raises SpecError: the engine's files are on one host, and nothing keeps the tasks there."""
    if capabilities.one_host and spans_hosts and spec.compute.queue is None:
        raise SpecError(
            f"{capabilities.engine} keeps the warehouse and what is staged in files of one host, and {spans_hosts} may run each task "
            "on another, which would not find them. Nothing was done. Set compute.queue to a queue that only a worker on that "
            "host serves, run the backfill under LocalExecutor there, or use PostgreSQL or Delta."
        )


def _host_cautions(spec: BackfillSpec, capabilities: Capabilities, spans_hosts: str) -> list[str]:
    if not (capabilities.one_host and spans_hosts):
        return []
    return [
        f"{capabilities.engine} works on one host: the queue {spec.compute.queue} must be served by a worker there alone."
    ]


def _require_swappable(spec: BackfillSpec, target: Target) -> None:
    """:raises SpecError: view_swap of a table, or another mechanism on a view."""
    swaps = spec.publish.mechanism == "view_swap"
    if swaps and target.version is None:
        raise SpecError(
            f"{target.table} is a table, and publish.mechanism view_swap needs a view that shows all of one. Rename the table, "
            f"to {target.table}__v1 for example, and let its readers go on with a view {target.table} of it; or use another "
            "mechanism."
        )
    if not swaps and target.version is not None:
        raise SpecError(
            f"{target.table} is a view of {target.version.table}: publish.mechanism {spec.publish.mechanism} has no rows of its own to "
            f"replace. Name {target.version.table}, or use view_swap."
        )


def _require_mergeable(spec: BackfillSpec, target: Target) -> None:
    """:raises SpecError: a merge would have to set a column that the table numbers itself."""
    if spec.publish.mechanism != "merge":
        return
    if numbered := [column.name for column in target.columns if column.numbered and column.name not in target.key]:
        raise SpecError(
            f"{target.table} numbers {', '.join(numbered)} itself (GENERATED ALWAYS AS IDENTITY), so a merge cannot update it. Use "
            "publish.mechanism replace_partitions, which keeps the numbers that are staged; or make the column GENERATED BY "
            "DEFAULT, or name it in target.key."
        )


def _require_hashable(target: Target) -> None:
    if unhashable := [f"{column.name} ({column.type})" for column in target.columns if not column.hashable]:
        raise SpecError(
            f"{target.table} has columns whose values cannot be fingerprinted: {', '.join(unhashable)}. "
            "Without a fingerprint nothing proves that what was validated is what gets published."
        )


def _require_cuttable(target: Target, partitions: tuple[Partition, ...]) -> None:
    try:
        require_cuttable(target.clock, partitions)
    except SpecError as error:
        raise SpecError(
            f"{target.table} cannot be cut on {target.partition_by}: {error}. Nothing was staged."
        ) from error


def _possible_swap(
    spec: BackfillSpec, warehouse: Warehouse, target: Target, partitions: Sequence[Partition]
) -> ChildSwap | None:
    """What ``publish.swap`` would come to; None where the spec or the table cannot have it."""
    if spec.publish.mechanism != "replace_partitions" or spec.publish.unit != "range":
        return None
    try:
        return warehouse.plan_swap(target, partitions)
    except SpecError:
        return None


def require_unpublished(spec: BackfillSpec, baseline: Mapping[str, Fingerprint]) -> None:
    """Refuse a first load that would replace rows.

    :raises SpecError: naming the partitions that have some.
    """
    filled = [f"{key} ({mark.rows} rows)" for key, mark in baseline.items() if mark.rows]
    if spec.kind == "first_load" and filled:
        raise SpecError(
            f"kind first_load expects nothing to be published, but {len(filled)} partitions of {spec.target.table} have "
            f"rows: {', '.join(filled[:5])}. Leave them out, or use kind: correction to replace them."
        )


def count_source(
    spec: BackfillSpec,
    warehouse: Warehouse,
    target: Target,
    partitions: Sequence[Partition],
    arrived: str,
    versions: Versions,
) -> dict[str, int]:
    """The source's rows that had arrived, by partition key; empty without a source.

    :param versions: at which to read it; without any, at the latest.
    :raises SpecError: the source cannot be cut into the partitions.
    """
    source = spec.source
    return {} if source is None else _counted(spec, source, warehouse, target, partitions, arrived, versions, ROWS)


def newest_arrivals(
    spec: BackfillSpec,
    warehouse: Warehouse,
    target: Target,
    partitions: Sequence[Partition],
    arrived: str,
    versions: Versions,
) -> dict[str, str]:
    """The newest arrival among the same rows as text, an instant in UTC; empty where the spec names no column for it.

    :raises SpecError: as :func:`count_source`, or there is no such column.
    """
    source = spec.source
    if source is None or source.arrival is None:
        return {}
    newest = Metric(MetricKind.MAX, (source.arrival,))
    found = _measured(spec, source, warehouse, target, partitions, arrived, versions, newest)
    return {key: _instant(value) for key, value in found.items() if value is not None}


def _instant(value: object) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    return str(value)


def _require_arrivals(
    spec: BackfillSpec, warehouse: Warehouse, target: Target, partitions: Sequence[Partition], versions: Versions
) -> None:
    """:raises SpecError: with a cutoff, a row of the source has no arrival, so that it is neither in nor out."""
    source = spec.source
    if source is None or source.cutoff is None:
        return
    column = source.cutoff.column
    without = Metric(MetricKind.NULLS, (column,))
    counted = _counted(spec, source, warehouse, target, partitions, "", versions, without)
    if rows := [f"{key} ({count} rows)" for key, count in counted.items() if count]:
        raise SpecError(
            f"source {source.table} has rows without {column}, which may have arrived before the plan or after it: "
            f"{', '.join(rows[:5])}. Fill the column, or leave source.cutoff out."
        )


def _counted(
    spec: BackfillSpec,
    source: SourceSpec,
    warehouse: Warehouse,
    target: Target,
    partitions: Sequence[Partition],
    arrived: str,
    versions: Versions,
    count: Metric,
) -> dict[str, int]:
    found = _measured(spec, source, warehouse, target, partitions, arrived, versions, count)
    return {key: int(value or 0) for key, value in found.items()}


def _measured(
    spec: BackfillSpec,
    source: SourceSpec,
    warehouse: Warehouse,
    target: Target,
    partitions: Sequence[Partition],
    arrived: str,
    versions: Versions,
    metric: Metric,
) -> dict[str, Scalar]:
    if not partitions:
        return {}
    try:
        measured = warehouse.measure(target, source_rows(source, spec, arrived, versions), partitions, [metric])
    except SpecError as error:
        raise SpecError(f"source {source.table} by {source.partition_by}: {error}") from error
    return {key: values[metric] for key, values in measured.items()}
