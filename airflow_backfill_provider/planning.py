"""Planning: a spec and a request are resolved, the facts are read, and both are frozen. Reads and never writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from airflow_backfill_provider.affected import count_affected, narrowed
from airflow_backfill_provider.answers import answers, strict_violations
from airflow_backfill_provider.batches import MOST_TASKS
from airflow_backfill_provider.cautions import (
    child_cautions,
    column_cautions,
    general_cautions,
    host_cautions,
    live_cautions,
    row_cautions,
    swap_cautions,
)
from airflow_backfill_provider.chain_order import require_chain, require_one_name, require_order
from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.control_period import published_control
from airflow_backfill_provider.cutoff import arrived_by
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.new_columns import grown, growth_cautions
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.range_evidence import look_at_range, range_cautions
from airflow_backfill_provider.recompute import PlannedEra, recomputer_of, with_compiled_model
from airflow_backfill_provider.resolution import Resolution, resolve
from airflow_backfill_provider.source_reading import SourceReading, latest_versions
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.spec_fit import checkable_constraints, require_fit
from airflow_backfill_provider.target_fit import (
    require_catalog_name,
    require_cuttable,
    require_hashable,
    require_mergeable,
    require_one_host,
    require_swappable,
)
from airflow_backfill_provider.warehouses.base import (
    ChildSwap,
    Fingerprint,
    Published,
    Target,
    Versions,
    Warehouse,
)
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.windows import Grain, Partition, Window


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
    most_tasks: int = MOST_TASKS,
    resolution: Resolution | None = None,
    pinned: Versions | None = None,
) -> Plan:
    """Resolve the range, read the facts, and freeze both; reads only.

    :param now: the aware instant that decides which partitions are over.
    :param resolution: what the request came to earlier; by default it is resolved at ``now``.
    :param pinned: the versions of sources that were resolved earlier; by default the latest.
    :param spans_hosts: the name of the executor, when it may run each task on another host.
    :param most_tasks: how many mapped tasks Airflow allows.
    :param strict: refuse a plan that leaves one of the five questions to a default.
    :raises RequestError: the range cannot be planned.
    :raises SpecError: the table or a column is not there, or cannot be worked with.
    :raises TransformRefused: the transform cannot be redirected, or its columns do not fit the target's.
    :raises CodeFailed: dbt could not compile the model.
    """
    # Only of a range that affected_when narrowed did the earlier result lose the ends that were asked for.
    asked = resolution if resolution and not spec.range.affected_when else resolve(spec, request, now)
    capabilities = warehouse.capabilities
    if spec.publish.mechanism not in capabilities.mechanisms:
        raise SpecError(
            f"publish.mechanism {spec.publish.mechanism} is not supported by {capabilities.engine}; "
            f"supported: {', '.join(sorted(capabilities.mechanisms))}. {capabilities.cannot.get(spec.publish.mechanism, '')}".rstrip()
        )
    require_one_host(spec, capabilities, spans_hosts)
    if strict and (open_questions := strict_violations(spec, request)):
        raise SpecError(
            "policy = strict refuses a plan that leaves a question to a default: " + "; ".join(open_questions) + "."
        )
    spec = with_compiled_model(spec, capabilities.dialect)
    described = warehouse.describe(spec.target.table, spec.target.partition_by, spec.target.key, target_reading(spec))
    require_catalog_name(spec, described)
    require_swappable(spec, described)
    require_mergeable(spec, described)
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
    require_cuttable(target, asked.partitions)
    affected = count_affected(spec, warehouse, target, asked.partitions)
    resolution = resolution or narrowed(asked, spec, affected)
    partitions, skipped = resolution.partitions, resolution.skipped
    found = look_at_range(spec, warehouse, target, asked.partitions, now)
    swap = warehouse.plan_swap(target, partitions) if spec.publish.swap and partitions else None
    require_hashable(target)
    warnings = [
        *resolution.notes,
        *general_cautions(spec, partitions, skipped),
        *live_cautions([one.key for one in partitions if not one.is_over(now)], spec),
        *swap_cautions(target),
        *child_cautions(swap),
        *growth,
        *host_cautions(spec, capabilities, spans_hosts),
        *unchecked,
        *range_cautions(spec, found, asked.partitions),
        *column_cautions(spec),
        *row_cautions(spec, target),
    ]
    eras: list[PlannedEra] = []
    fits: list[ColumnFit] = []
    discarded: list[str] = []
    for members in (tuple(of_era) for _, of_era in groupby(partitions, key=spec.era_of)):
        era = recomputer.plan(members)
        require_order(spec, era, capabilities.dialect)
        require_one_name(spec, era, target, warehouse)
        eras.append(era)
        fits += recomputer.fits(era, target, warehouse)
        discarded += [column.name for column in recomputer.surplus(era, target, warehouse)]
        findings = recomputer.findings(members[0], warehouse)
        warnings += [f"{era.file}, {finding}" if spec.transform.stretches else str(finding) for finding in findings]
    require_chain(spec, eras, [one.key for one in partitions if not one.is_over(now)], capabilities.dialect)
    versions = latest_versions(spec, warehouse, eras) | dict(pinned or {})
    if partitions:
        warnings += warehouse.source_cautions(versions, since=_first_run(partitions), needed=_may_take(spec))
        warnings += warehouse.receipt_cautions(target, needed=spec.rollback.keep_for)
        warnings += warehouse.reader_cautions(target)
    SourceReading(spec, warehouse, target, arrived="", versions=versions).require_arrivals(partitions)
    if discarded:
        warnings.append(
            f"schema.mode discard_columns leaves out {', '.join(dict.fromkeys(discarded))}, which {target.table} does not have."
        )
    baseline = warehouse.fingerprint(target, Published(), partitions) if partitions else {}
    control = published_control(spec, warehouse, target, partitions, now) if partitions else {}
    require_unpublished(spec, baseline)
    if spec.publish.deletes_rows:
        warnings += warehouse.upkeep(target, deleted=sum(mark.rows for mark in baseline.values()))
    if partitions and spec.kind != "first_load" and not any(mark.rows for mark in baseline.values()):
        warnings.append(f"{spec.target.table} has no row in the whole range: is this the right table and range?")
    outside = warehouse.outside_rows(target).null_partition
    if outside:
        warnings.append(
            f"{outside} published rows have no {target.partition_by}: they are in no partition and stay as they are."
        )
    reading = SourceReading(spec, warehouse, target, cutoff, versions)
    plan = Plan(
        backfill_id=backfill_id,
        spec=spec,
        request=request,
        resolved=resolution.span,
        asked=resolution.asked,
        notes=resolution.notes,
        planned_at=now,
        engine=capabilities.engine,
        dialect=capabilities.dialect,
        target=target,
        partitions=partitions,
        skipped=skipped,
        baseline=baseline,
        affected={one.key: rows for one in partitions if (rows := affected.get(one.key))},
        range_found=found,
        control=control,
        source_rows=reading.rows(partitions),
        source_newest=reading.newest_arrivals(partitions),
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
        most_tasks=most_tasks,
    )
    plan.require_short_write_block(lambda: _possible_swap(spec, warehouse, target, partitions))
    plan.require_budget()
    return plan


NOT_PROVEN = (
    "The new rule may be wrong as well: the checks prove how it was applied, not that it is the right one.",
    "A source that was updated in place cannot show history as it was.",
    "Exports and caches that consumers made of the old rows are theirs to rebuild.",
)


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


def target_reading(spec: BackfillSpec) -> Reading:
    """How the spec says the target's partition column is to be read."""
    target = spec.target
    return Reading(target.timezone, target.column_timezone, target.column_format, target.grain is Grain.LIST)


_A_LONG_RUN = timedelta(days=1)
"""How long a backfill may take with its approvals and retries, unless the spec bounds it."""


def _may_take(spec: BackfillSpec) -> timedelta:
    return spec.compute.max_runtime or _A_LONG_RUN


def _first_run(partitions: Sequence[Partition]) -> datetime | None:
    """When the first of them could be computed for the first time; None of a list, where nothing tells."""
    return min((one.window.end for one in partitions if isinstance(one.span, Window)), default=None)


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
