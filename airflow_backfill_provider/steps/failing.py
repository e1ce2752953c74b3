"""Failing fast: once a partition has failed, no other one is begun, unless the spec wants the others finished.

What Airflow tries again holds back the other partitions of its own task at once, and those of other tasks once its last try has failed.

The failure stands in the ledger, where every task of the run sees it. It holds back the try of the run that it happened in:
a run that was cleared since, or another run, goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from airflow_backfill_provider.errors import CodeFailed, ConnectionLost, HeldBack, LockTimeout, StrayWrite, TargetMoved
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.way_on import clear_command
from airflow_backfill_provider.steps.work import Work

FAILED_EVENT = "partitions.failed"


def record_failure(work: Work, keys: Sequence[str], reason: str) -> None:
    """Let every task of this try of the run know that these partitions failed, and that nothing tries them again by itself."""
    detail = {"run_id": work.run_id, "clear_number": work.clear_number, "keys": list(keys), "reason": reason[:500]}
    work.ledger.record_event(work.backfill_id, FAILED_EVENT, by=work.by, detail=detail)


def has_failed(work: Work, error: Exception) -> bool:
    """Whether nothing tries again by itself what ended so."""
    return work.is_last_try or not isinstance(error, (CodeFailed, ConnectionLost, LockTimeout))


@contextmanager
def failing_together(work: Work, keys: Sequence[str]) -> Iterator[None]:
    """Record that all of these failed, when what happens inside ends for a reason that is no single partition's."""
    try:
        yield
    except (ConnectionLost, LockTimeout, StrayWrite, TargetMoved) as error:
        if has_failed(work, error):
            record_failure(work, keys, str(error))
        raise


def require_no_failure(work: Work, plan: Plan) -> None:
    """Refuse to begin another partition after one has failed; nothing with ``fail_fast: false``.

    :raises HeldBack: naming what failed, and how to go on.
    """
    if not plan.spec.compute.fail_fast:
        return
    here = (work.run_id, work.clear_number)
    for event in work.ledger.events(work.backfill_id, FAILED_EVENT):
        if (event.detail["run_id"], event.detail["clear_number"]) == here:
            failed = ", ".join(event.detail["keys"][:3])
            raise HeldBack(
                f"Held back, because {failed} failed: compute.fail_fast begins no other partition then. What is staged stays. Mend "
                f"the cause, then clear the failed tasks: {clear_command(work.ledger.backfill(work.backfill_id))}. With fail_fast: "
                "false the others are finished first."
            )
