"""Scope: turn a spec and a request into a frozen plan, or find the plan that is already there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_backfill_provider.affected import count_affected
from airflow_backfill_provider.batches import MOST_TASKS, Batch
from airflow_backfill_provider.errors import PublishRefused, RangeLocked, RequestError
from airflow_backfill_provider.ledger.range_locks import NAME_EACH, NOT_THIS_RUN
from airflow_backfill_provider.ledger.records import (
    UNKNOWN_ORIGIN,
    BackfillRecord,
    Gate,
    NewBackfill,
    Origin,
    StoredPlan,
)
from airflow_backfill_provider.ledger.states import WRITTEN, BackfillState, PartitionState
from airflow_backfill_provider.ledger.trail import REVISED_EVENT
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan, require_unpublished
from airflow_backfill_provider.recompute import with_compiled_model
from airflow_backfill_provider.resolution import resolve
from airflow_backfill_provider.source_reading import SourceReading, latest_versions
from airflow_backfill_provider.spec.drill import with_range
from airflow_backfill_provider.spec.hashes import spec_hash
from airflow_backfill_provider.spec.model import SourceSpec
from airflow_backfill_provider.spec.request import Mode, Request
from airflow_backfill_provider.steps.drill import claimed
from airflow_backfill_provider.steps.gates import is_needed, not_needed
from airflow_backfill_provider.steps.live_lag import Moment
from airflow_backfill_provider.steps.settle import settle
from airflow_backfill_provider.steps.watch import release_neighbours
from airflow_backfill_provider.steps.way_on import may_still_commit
from airflow_backfill_provider.steps.work import Work, require_same_target
from airflow_backfill_provider.warehouses.base import Published, Versions
from airflow_backfill_provider.windows import merge


@dataclass(frozen=True)
class Run:
    """The DAG run that asks."""

    dag_id: str
    run_id: str
    requested_by: str
    origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True)
class Scoped:
    """What the next steps get: the plan, and how it is dealt out."""

    plan: Plan
    batches: tuple[Batch, ...]
    resumed: bool
    note: str = ""


def scope(
    work: Work,
    request: Request,
    run: Run,
    *,
    strict: bool = False,
    spans_hosts: str = "",
    code_revision: str = "",
    most_tasks: int = MOST_TASKS,
) -> Scoped:
    """Plan a new backfill and lock its range, or load the plan this run already has; never both.

    A ``mode: plan`` request writes nothing and locks nothing.

    :raises RangeLocked: another backfill owns part of the range.
    :raises IntentChanged: the spec was edited and the request does not say ``restage``.
    """
    existing = work.ledger.find_backfill(work.backfill_id)
    if existing is not None:
        return _resume(work, request, existing, run, most_tasks)
    if request.backfill_id is not None:
        raise RequestError(
            f"There is no backfill {request.backfill_id} in the ledger; see `airflow safe-backfill list`."
        )
    request = with_range(work.spec, request)
    if request.mode is not Mode.PLAN:
        work.check_stop()
    plan = build_plan(
        work.spec,
        request,
        work.warehouse,
        backfill_id=work.backfill_id,
        now=work.now(),
        strict=strict,
        spans_hosts=spans_hosts,
        code_revision=code_revision,
        most_tasks=most_tasks,
    )
    if request.mode is not Mode.PLAN:
        _require_gate(plan)
    if request.mode is Mode.PLAN or not plan.partitions:
        return Scoped(plan, (), resumed=False, note="" if plan.partitions else "nothing to do")
    work.ledger.open_backfill(
        NewBackfill(
            backfill_id=plan.backfill_id,
            name=work.spec.name,
            target=claimed(plan),
            tenant="",
            dag_id=run.dag_id,
            run_id=run.run_id,
            conn_id=work.spec.compute.conn_id,
            mode=str(request.mode),
            reason=request.reason,
            requested_by=run.requested_by,
            partitions=plan.partitions,
            spans=merge(plan.settled),
            claimed_later=merge(plan.live),
            origin=run.origin,
            plan=_stored(work, plan, run, revision=1),
        ),
        by=work.by,
    )
    work.measure_lag(Moment.BEFORE)
    _record_policy(work, plan)
    return Scoped(plan, plan.batches(), resumed=False)


def _require_gate(plan: Plan) -> None:
    """:raises RequestError: the range was widened, which a person has to approve, and by its spec nobody is ever asked."""
    whole = plan.resolved
    if plan.asked is None or whole is None or plan.request.drill or plan.spec.approval.required != "never":
        return
    raise RequestError(
        f"expand: true made {whole} of {plan.asked}. A wider range than what was asked for needs a person's approval, and "
        "approval.required is never, so nobody would be asked. Nothing was done. Ask for the whole range: "
        f'{{"start_date": "{whole.start:%Y-%m-%dT%H:%M:%SZ}", "end_date": "{whole.end:%Y-%m-%dT%H:%M:%SZ}"}}; or set approval.required, such as '
        "{over_partitions: 31}, under which this plan waits for a person."
    )


_OVER = {
    BackfillState.ROLLED_BACK: "was published and rolled back; publishing again needs a new backfill",
    BackfillState.EXPIRED: "is over: it was given up, or its way back has ended; its range is free for a new backfill",
}


def _resume(work: Work, request: Request, existing: BackfillRecord, run: Run, most_tasks: int) -> Scoped:
    if existing.state in _OVER:
        raise PublishRefused(f"Backfill {existing.backfill_id} {_OVER[existing.state]}. Trigger the DAG anew.")
    if existing.name != work.spec.name:
        raise RequestError(f"Backfill {existing.backfill_id} is of {existing.name}, not of {work.spec.name}.")
    if request.backfill_id is None:
        _require_same_run(existing, run)
    plan = work.stored_plan().model_copy(update={"most_tasks": most_tasks})
    if request.mode is Mode.PLAN:
        return Scoped(plan, (), resumed=True, note=f"{existing.state}; a preview changes nothing")
    if existing.state is BackfillState.PUBLISHING and _revises(work, plan, request, run):
        raise PublishRefused(
            f"{may_still_commit(existing)} `airflow safe-backfill abandon {existing.backfill_id} --publish-is-dead --reason …` "
            "frees the range for a new backfill. Its plan is revised, and its partitions are staged again, only once it publishes "
            "no more."
        )
    work.ledger.take_over(
        existing.backfill_id,
        dag_id=run.dag_id,
        run_id=run.run_id,
        mode=str(request.mode),
        by=work.by,
        origin=run.origin,
    )
    written = settle(work, plan)
    state = work.ledger.backfill(existing.backfill_id).state
    if state in WRITTEN:
        if request.restage or request.rebase:
            raise PublishRefused(
                f"Backfill {existing.backfill_id} is {state}: what it published is not staged again. Trigger the DAG anew."
            )
        return Scoped(plan, plan.batches(), resumed=True, note=f"already {state}")
    # One that an earlier version of the provider planned has none.
    work.ledger.reserve_range(existing.backfill_id, merge(plan.live), by=work.by)
    # Compiled again, so that a project that changed since is noticed; later tasks take what the plan froze.
    work = replace(work, spec=with_compiled_model(work.spec, plan.dialect))
    if written.published and (request.restage or request.rebase or spec_hash(work.spec) != plan.spec_hash):
        raise PublishRefused(
            f"{len(written.published)} of {len(plan.keys)} partitions of backfill {existing.backfill_id} are published, so its plan "
            f"cannot be revised any more. Clear atomic_publish to publish the others by the plan that was validated, or roll it "
            f"back with rollback__{work.spec.name}."
        )
    restage: set[str] = set()
    reasons: list[str] = []
    asked = _asked(run)
    if request.restage and not _heeded(work, plan, asked):
        plan = _replan(work, plan, restaged=True)
        release_neighbours(work, asked)
        restage |= set(plan.keys)
        reasons.append(asked)
    elif spec_hash(work.spec) != plan.spec_hash:
        if _intent_of(work, plan) != plan.intent_hash:
            work.plan()  # raises, naming both versions
        plan = _replan(work, plan, restaged=False)
        reasons.append("checks or settings changed")
    if request.rebase:
        plan, moved = _rebase(work, plan)
        if (
            existing.run_id != run.run_id
        ):  # a cleared run says the same for ever, also of what it wrote itself meanwhile
            release_neighbours(work, f"rebase was asked for by {run.dag_id} {run.run_id}")
        restage |= moved
        if moved:
            reasons.append(f"rebase: {len(moved)} partitions moved")
    if reasons:
        _revise(work, plan, run, restage, "; ".join(reasons))
    elif state is not BackfillState.PLANNED:
        work.ledger.move(existing.backfill_id, BackfillState.PLANNED, by=work.by, reason="resumed")
    _record_policy(work, plan)
    return Scoped(plan, plan.batches(), resumed=True, note="; ".join([*reasons, *_drift(plan, work)]))


def _require_same_run(existing: BackfillRecord, run: Run) -> None:
    """:raises RangeLocked: the run that opened the backfill had these ids, and is not this one."""
    if (existing.dag_id, existing.run_id) == (run.dag_id, run.run_id) and run.origin.is_another_than(existing.origin):
        raise RangeLocked(
            f"Backfill {existing.backfill_id!r} is of a run {run.run_id!r} of DAG {run.dag_id!r}, as this one is, which {NOT_THIS_RUN} "
            f"Nothing was changed. {NAME_EACH} Do not clear this task before: that would take the backfill over. If it was this run "
            "before it was deleted and made anew, go on with it by the conf "
            f'{{"backfill_id": "{existing.backfill_id}"}}.',
            existing.backfill_id,
        )


def _drift(plan: Plan, work: Work) -> list[str]:
    """What the same words would mean today, when that is not what was planned."""
    if not plan.request.is_relative:
        return []
    today = resolve(plan.spec, plan.request, work.now()).partitions
    if [partition.key for partition in today] == list(plan.keys):
        return []
    return [
        f"the range stays as it was planned, {plan.keys[0]} … {plan.keys[-1]}; today the same words would mean "
        f"{len(today)} partitions up to {today[-1].key if today else 'none'}"
    ]


def _revises(work: Work, plan: Plan, request: Request, run: Run) -> bool:
    """Whether the request, or the spec as it is by now, wants another plan than this."""
    now = replace(work, spec=with_compiled_model(work.spec, plan.dialect))
    restages = request.restage and not _heeded(now, plan, _asked(run))
    return restages or request.rebase or spec_hash(now.spec) != plan.spec_hash


def _asked(run: Run) -> str:
    return f"restage was asked for by {run.dag_id} {run.run_id}"


def _heeded(work: Work, plan: Plan, asked: str) -> bool:
    """Whether this run's restage happened already: its conf says so for ever, and clearing it must not start over."""
    if _intent_of(work, plan) != plan.intent_hash:
        return False
    # A revision gives what was asked for first; another run's id may begin with this one's.
    revisions = work.ledger.events(plan.backfill_id, REVISED_EVENT)
    return any(f"{event.detail['reason']}; ".startswith(f"{asked}; ") for event in revisions)


def _intent_of(work: Work, plan: Plan) -> str:
    return plan.model_copy(update={"spec": work.spec}).intent_hash


def _replan(work: Work, plan: Plan, *, restaged: bool) -> Plan:
    """The same partitions under the edited spec, with every fact read again where it may differ.

    What staged work rests on is kept: the baseline, and the count and the versions of the sources unless all is staged again.
    """
    require_same_target(plan, work.spec)
    fresh = build_plan(
        work.spec,
        plan.request,
        work.warehouse,
        backfill_id=plan.backfill_id,
        now=plan.planned_at,
        resolution=plan.resolution,
        pinned=None if restaged else plan.source_versions,
        most_tasks=plan.most_tasks,
    )
    kept: dict[str, Any] = {"baseline": plan.baseline, "earlier_versions": {} if restaged else plan.earlier_versions}
    if not restaged and _read_of(work.spec.source) == _read_of(plan.spec.source):
        # Another column's arrivals cannot be compared with these; what is staged already came before any of its own was kept.
        same = _arrival_of(work.spec.source) == _arrival_of(plan.spec.source)
        kept |= {
            "source_rows": plan.source_rows,
            "source_newest": plan.source_newest if same else {},
            "live_reading": plan.live_reading,
        }
    return fresh.model_copy(update=kept)


def _read_of(source: SourceSpec | None) -> SourceSpec | None:
    """What decides which rows are counted."""
    return source and source.model_copy(update={"on_moved": "refuse", "history": (), "watermark": None})


def _arrival_of(source: SourceSpec | None) -> str | None:
    return None if source is None else source.arrival


def _rebase(work: Work, plan: Plan) -> tuple[Plan, set[str]]:
    """Read the published range and the source again; the partitions that moved in either get their new facts.

    They are staged again, from the latest versions of their sources; what did not move keeps what it was staged from, and the
    plan remembers which version that was. Live ones that are not staged yet have not moved: they are read when they are.
    """
    current = work.warehouse.fingerprint(plan.target, Published(), plan.partitions)
    require_unpublished(plan.spec, current)
    versions = latest_versions(plan.spec, work.warehouse, plan.eras)
    sources: dict[str, int] = {}
    newest: dict[str, str] = {}
    for members in filter(None, (plan.settled, plan.live)):
        reading = SourceReading(plan.spec, work.warehouse, plan.target, plan.as_read(members).arrived, versions)
        sources |= reading.rows(members)
        newest |= reading.newest_arrivals(members)
    unread = {one.key for one in plan.live} - set(plan.live_reading.baseline if plan.live_reading else ())
    moved = {
        key
        for key in plan.keys
        if key not in unread
        and (
            current[key] != plan.baseline[key]
            or sources.get(key) != plan.source_rows.get(key)
            or newest.get(key) != plan.source_newest.get(key, newest.get(key))
        )
    }
    if not moved:
        return plan, moved
    if plan.spec.transform.is_chained:
        first = next(number for number, key in enumerate(plan.keys) if key in moved)
        moved = set(plan.keys[first:])  # each is made from those before it
    facts = {
        "baseline": current,
        "source_rows": sources,
        "source_newest": {key: at for key, at in newest.items() if key in moved or key in plan.source_newest},
        "source_versions": versions,
        "earlier_versions": _earlier_versions(work, plan, versions, moved),
        "affected": {
            **plan.affected,
            **count_affected(plan.spec, work.warehouse, plan.target, plan.select(tuple(moved))),
        },
    }
    return plan.model_copy(update=facts), moved


def _earlier_versions(
    work: Work, plan: Plan, versions: Versions, moved: Collection[str]
) -> dict[str, Mapping[str, int]]:
    """Of each partition that keeps rows which were staged from versions that are not these."""
    records = work.ledger.partitions(plan.backfill_id)
    kept = [one for one in plan.partitions if one.key not in moved and records[one.key].staged_intent is not None]
    read = {one.key: plan.versions_read(one) for one in kept}
    return {key: earlier for key, earlier in read.items() if earlier != versions}


def _revise(work: Work, plan: Plan, run: Run, restage: Collection[str], reason: str) -> None:
    records = work.ledger.partitions(plan.backfill_id)
    judged = {PartitionState.VALIDATED, PartitionState.REJECTED}
    revalidate = {key for key, record in records.items() if key not in restage and record.state in judged}
    revision = work.ledger.plan(plan.backfill_id).revision + 1
    work.ledger.revise_plan(
        plan.backfill_id,
        _stored(work, plan, run, revision=revision),
        restage=restage,
        revalidate=revalidate,
        by=work.by,
        reason=reason,
    )


_NOT_REQUIRED = "approval.not_required"


def _record_policy(work: Work, plan: Plan) -> None:
    """A plan that nobody has to approve says so in the audit trail, once, and by which rule."""
    if is_needed(plan, Gate.PLAN):
        return
    # A scope that was killed before it came here left the plan alone behind, and the next one has to say it.
    if plan.plan_hash in {event.detail["plan_hash"] for event in work.ledger.events(plan.backfill_id, _NOT_REQUIRED)}:
        return
    detail = {"reason": not_needed(plan), "plan_hash": plan.plan_hash, "spec_hash": plan.spec_hash}
    work.ledger.record_event(plan.backfill_id, _NOT_REQUIRED, by="the spec's policy", detail=detail)


def _stored(work: Work, plan: Plan, run: Run, *, revision: int) -> StoredPlan:
    return StoredPlan(
        revision=revision,
        plan_hash=plan.plan_hash,
        intent_hash=plan.intent_hash,
        spec_hash=plan.spec_hash,
        document=plan.document(),
        created_at=work.now(),
        requested_by=run.requested_by,
    )
