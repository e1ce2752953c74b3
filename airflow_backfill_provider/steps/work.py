"""What every step works with: one spec, one backfill, its warehouse and its ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from airflow_backfill_provider.errors import (
    IntentChanged,
    PublishRefused,
    Stopped,
    Throttled,
    TransformRefused,
    TransitionRefused,
)
from airflow_backfill_provider.ledger.records import AirflowTask, PartitionRecord
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.recompute import Elsewhere
from airflow_backfill_provider.spec.hashes import intent_hash, spec_hash
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import conf_of
from airflow_backfill_provider.steps.live_lag import Moment
from airflow_backfill_provider.steps.metrics import Metrics, Untold
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.warehouses.base import Fingerprint, StagedPartition, Warehouse
from airflow_backfill_provider.windows import Partition


def go_on() -> None:
    """The stop signal of a caller that has none."""


def unmeasured(moment: Moment) -> None:
    """For a caller that has no live lag to look at."""


def unknown() -> bool:
    """For a caller that cannot tell whether a publish still runs."""
    return False


def nowhere(spec: BackfillSpec) -> Elsewhere:
    """For a caller that can have nothing done elsewhere."""
    raise TransformRefused(f"The {spec.transform.origin} can be run by a task of Airflow only.")


def utc_now() -> datetime:
    """Now, as an aware UTC instant."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Work:
    """One backfill as a step sees it."""

    spec: BackfillSpec
    backfill_id: str
    warehouse: Warehouse
    ledger: Ledger
    by: str
    """Who acts, for the audit trail: a user, or a task with its attempt."""
    check_stop: Callable[[], None] = go_on
    """Raises :class:`~airflow_backfill_provider.errors.Stopped` when the work must not go on."""
    run_id: str = ""
    """The DAG run that works."""
    task: AirflowTask | None = None
    """The task of it that works; None where none does, or none that is known."""
    clear_number: int = 0
    """How often that run was cleared: a retry has the number of the attempt before it, a cleared task a greater one."""
    is_last_try: bool = True
    """Whether nobody tries this again by himself when it fails; false while Airflow has retries left."""
    check_throttle: Callable[[], None] = go_on
    """Raises :class:`~airflow_backfill_provider.errors.Throttled` when the work must wait, and ``Stopped`` when it has for too long."""
    measure_lag: Callable[[Moment], None] = unmeasured
    """Looks at every live lag and records what it found; never raises what a probe does."""
    elsewhere: Callable[[BackfillSpec], Elsewhere] = nowhere
    """Where the spec's transform runs, if that is elsewhere."""
    publish_is_dead: Callable[[], bool] = unknown
    """Whether no publish of this backfill runs any more, as far as anybody can tell."""
    pause: Callable[[float], None] = time.sleep
    """Waits for so many seconds; raises when the task is ended meanwhile."""
    metrics: Metrics = field(default_factory=Untold)
    now: Callable[[], datetime] = utc_now
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("airflow_backfill_provider"))

    @property
    def revision(self) -> int:
        """The newest plan revision."""
        return self.ledger.backfill(self.backfill_id).revision

    def stored_plan(self) -> Plan:
        """The frozen plan, whatever the spec says by now."""
        return stored_plan(self.ledger, self.backfill_id)

    def plan(self) -> Plan:
        """The frozen plan, once it is certain that the spec is still the one it was made from.

        :raises IntentChanged: the spec was edited since; naming both versions and the way on.
        """
        plan = self.stored_plan()
        spec = self.spec.settled_like(plan.spec)
        here = spec_hash(spec)
        if here == plan.spec_hash:
            return plan
        intent = intent_hash(spec, plan.keys)
        if intent == plan.intent_hash:
            raise IntentChanged(
                f"Checks or settings of {self.spec.name} changed since the plan was made (spec {plan.spec_hash[:12]} then, "
                f"{here[:12]} now). Staged work stays valid: clear scope_partitions with downstream to revise the plan."
            )
        require_same_target(plan, spec)
        raise IntentChanged(
            f"The SQL of {self.spec.name}, or another part of its spec that decides what is staged, changed since the plan was made: "
            f"intent {plan.intent_hash[:12]} then, {intent[:12]} now. Nothing was mixed. Go back to the planned version, or "
            f"trigger the DAG with {conf_of(self.backfill_id, 'restage')} to throw the staged work away and stage again."
        )

    def stop_or_go(self) -> None:
        """Heed the stop signal and the throttle; a stop is written to the ledger before it is raised.

        Who waits lets live partitions go: it may be for the very pipeline that cannot go on without them.
        """
        try:
            self.check_stop()
            self.check_throttle()
        except Stopped as stop:
            self.halt(stop)
            raise
        except Throttled:
            self.let_live_go()
            raise

    def stop_or_ask(self) -> None:
        """Heed the stop signal alone, as whoever only asks people does: they may answer while the warehouse belongs to others."""
        replace(self, check_throttle=go_on).stop_or_go()

    def let_live_go(self) -> None:
        """Give live partitions back to the scheduled pipeline, unless something is published or a publish may rest on them.

        They are claimed, read and staged again by whatever goes on with the backfill.
        """
        self.ledger.release_live_range(self.backfill_id, by=self.by)

    def halt(self, stop: Stopped) -> None:
        """Record that the backfill is halted, and by what; one that publishes, or whose outcome is decided, stays what it is."""
        with suppress(TransitionRefused):
            self.ledger.move(
                self.backfill_id,
                BackfillState.HALTED,
                by=self.by,
                reason=str(stop),
                expected=HALTABLE,
                error=type(stop).__name__,
            )

    def run(self) -> None:
        """Record that work goes on."""
        self.ledger.move(self.backfill_id, BackfillState.RUNNING, by=self.by)


HALTABLE = frozenset(
    {BackfillState.PLANNED, BackfillState.AWAITING_APPROVAL, BackfillState.RUNNING, BackfillState.VALIDATED}
)
_DECIDE_NO_PLACE = {"key", "sensitive", "outlet"}


def require_same_target(plan: Plan, spec: BackfillSpec) -> None:
    """:raises IntentChanged: the spec names another table by now, or cuts it otherwise; the range that is held is none of that."""
    was, wanted = (one.target.model_dump(mode="json", exclude=_DECIDE_NO_PLACE) for one in (plan.spec, spec))
    if was == wanted:
        return
    differing = ", ".join(
        f"target.{name} ({was[name]!r} then, {now!r} now)" for name, now in wanted.items() if now != was[name]
    )
    raise IntentChanged(
        f"The target of {spec.name} changed since the plan was made: {differing}. Backfill {plan.backfill_id} holds a range of the "
        "one that was planned and is never taken to another. Nothing was changed. Go back to the planned version; or give it up "
        f"(airflow safe-backfill abandon {plan.backfill_id} --reason …) and trigger the DAG anew."
    )


def staged_partition(partition: Partition, record: PartitionRecord) -> StagedPartition:
    """The staged rows that the ledger has on record for a partition."""
    return StagedPartition(partition, str(record.location), staged_fingerprint(record))


def staged_fingerprint(record: PartitionRecord) -> Fingerprint:
    """The fingerprint a partition's rows had when they were staged.

    :raises PublishRefused: it is not staged.
    """
    if (mark := fingerprint_on_record(record)) is None:
        raise PublishRefused(f"Partition {record.key} is {record.state}, so no staged rows are on record for it.")
    return mark


def fingerprint_on_record(record: PartitionRecord) -> Fingerprint | None:
    """The same, or None: nothing is staged, or what was is forgotten, as a plan that is revised makes it."""
    if record.rows is None or record.digest is None or record.method is None:
        return None
    return Fingerprint(record.rows, record.digest, record.method)
