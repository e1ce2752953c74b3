"""Rehearsal: the publish of one partition and its undo, on a shadow of it and its neighbours that nobody else sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from airflow_backfill_provider.errors import (
    TRANSIENT,
    BackfillError,
    PublishRefused,
    Stopped,
    TrialFailed,
)
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.baseline import require_equal
from airflow_backfill_provider.steps.mechanism import change, undo
from airflow_backfill_provider.steps.neighbours import neighbours
from airflow_backfill_provider.steps.receipts import written_by
from airflow_backfill_provider.steps.way_on import rebase
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import (
    Action,
    Backup,
    Fingerprint,
    Publication,
    Published,
    Shadow,
    Staged,
    StagedPartition,
)
from airflow_backfill_provider.windows import Partition

_MILLION = 1_000_000


@dataclass(frozen=True)
class Rehearsal:
    """How a publish and its undo went on the shadow; seconds of the wall clock."""

    neighbours: tuple[str, ...]
    """The partitions beside it that were shown to stay as they are."""
    publish_seconds: float
    restored_rows: int
    restore_seconds: float
    restore_seconds_per_million: float | None
    """As if all of the time grew with the rows, so an upper bound; None when there was no row to put back."""

    def __str__(self) -> str:
        pace = self.restore_seconds_per_million
        per_million = f", at most {pace:,.1f} s per million" if pace is not None else ""
        return (
            f"published twice and rolled back on a copy; the undo took {self.restore_seconds:.2f} s for "
            f"{self.restored_rows:,} rows{per_million}"
        )


def rehearse(work: Work, plan: Plan, staged: StagedPartition) -> Rehearsal:
    """Publish the partition twice on a shadow and roll it back; the published table is only read.

    The second publish changes nothing, and after the rollback the shadow is what it was.

    :raises TrialFailed: one of these is not so, or the engine refused a step that the real publish would take.
    :raises TargetMoved: the published partition is not what the plan saw.
    """
    beside = neighbours(plan, staged.partition)
    with ExitStack() as opened:
        with _as_trial(staged):
            shadow, around = opened.enter_context(_shadow(work, plan, staged, beside))
        original = shadow.warehouse.fingerprint(shadow.target, Published(), around)
        key = staged.partition.key
        claim = f"The published range of {plan.target.table} moved since the plan was made"
        require_equal({key: plan.baseline[key]}, original, claim, rebase(work.backfill_id))
        with _as_trial(staged):
            return _Steps(work, plan, shadow, staged, around, original).run()


@contextmanager
def _shadow(
    work: Work, plan: Plan, staged: StagedPartition, beside: Sequence[Partition]
) -> Iterator[tuple[Shadow, tuple[Partition, ...]]]:
    """A shadow with the neighbours; without them where rows move over from one, which is published with it."""
    around = tuple(sorted([staged.partition, *beside]))
    with work.warehouse.open_shadow(plan.target, work.backfill_id, around) as shadow:
        moves_over = beside and shadow.warehouse.key_conflicts(shadow.target, Staged((staged,))).outside
        if not moves_over:
            yield shadow, around
            return
    with _shadow(work, plan, staged, ()) as alone:
        yield alone


class _Steps:
    """The rehearsal, step by step, on one shadow."""

    def __init__(
        self,
        work: Work,
        plan: Plan,
        shadow: Shadow,
        staged: StagedPartition,
        around: Sequence[Partition],
        original: Mapping[str, Fingerprint],
    ) -> None:
        self._work, self._plan, self._shadow, self._staged = work, plan, shadow, staged
        self._around, self._original = around, original
        self._key = staged.partition.key

    def run(self) -> Rehearsal:
        """Back up, publish, publish again, restore."""
        warehouse, target = self._shadow.warehouse, self._shadow.target
        partition, before, after = self._staged.partition, self._original[self._key], self._staged.fingerprint
        backup, _ = warehouse.back_up(target, self._work.backfill_id, [partition], label="trial")
        try:
            forth = self._publication(Action.PUBLISH, before, after, Staged((self._staged,)))
            # A shadow has no children that could be exchanged; their rows are replaced there.
            how = self._plan.spec.publish.model_copy(update={"swap": False})
            publish, restore = (way(warehouse, how) for way in (change, undo))
            publish_seconds = _timed(lambda: publish(target, forth))
            self._require("The publish", {**self._original, self._key: after})
            if self._key not in written_by(warehouse.receipts(target), self._work.backfill_id).published:
                raise TrialFailed("The publish left no receipt, so a second one would not know of it.")
            with suppress(PublishRefused):  # as it should: the range is not what it was before the first
                publish(target, forth)
            self._require("A second publish", {**self._original, self._key: after})
            back = self._publication(Action.ROLLBACK, after, before, backup)
            restore_seconds = _timed(lambda: restore(target, back))
            self._require("The rollback", self._original)
        finally:
            warehouse.drop(backup.location)
        beside = tuple(one.key for one in self._around if one != partition)
        pace = round(restore_seconds * _MILLION / before.rows, 3) if before.rows else None
        return Rehearsal(beside, publish_seconds, before.rows, restore_seconds, pace)

    def _publication(
        self, action: Action, before: Fingerprint, after: Fingerprint, rows: Staged | Backup
    ) -> Publication:
        return Publication(
            backfill_id=self._work.backfill_id,
            action=action,
            plan_hash=self._plan.plan_hash,
            partitions=(self._staged.partition,),
            rows=rows,
            before={self._key: before},
            after={self._key: after},
        )

    def _require(self, what: str, expected: Mapping[str, Fingerprint]) -> None:
        found = self._shadow.warehouse.fingerprint(self._shadow.target, Published(), self._around)
        wrong = [
            f"{key} ({expected[key].rows} rows expected, {mark.rows} found)"
            for key, mark in found.items()
            if mark != expected[key]
        ]
        if wrong:
            raise TrialFailed(f"{what} did not leave what it should: {', '.join(wrong)}.")


@contextmanager
def _as_trial(staged: StagedPartition) -> Iterator[None]:
    """Say of any error that it is the rehearsal's; but a stop and what a retry may mend stay what they are."""
    try:
        yield
    except (Stopped, *TRANSIENT):
        raise
    except BackfillError as error:
        raise TrialFailed(
            f"The publish of {staged.partition.key} was rehearsed on a copy and went wrong there: {error} No other partition was "
            "computed, and the published table is as it was. Mend the cause and clear the trial."
        ) from error


def _timed(step: Callable[[], object]) -> float:
    started = time.monotonic()
    step()
    return round(time.monotonic() - started, 3)
