"""One partition by a run elsewhere: submit it, wait, take its rows; go on with the run of a worker that was killed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from airflow_backfill_provider.errors import BackfillError, CodeFailed, Stopped
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.recompute import Elsewhere
from airflow_backfill_provider.recompute.elsewhere import told_of
from airflow_backfill_provider.spec.transforms import DagTransform
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Landing, Recompute
from airflow_backfill_provider.windows import Partition

SENT_EVENT = "elsewhere.sent"
"""A run is about to be submitted; its line has the run's name and where its rows go."""
OVER_EVENT = "elsewhere.over"
"""Nobody waits for that run any more, with the reason."""


@dataclass(frozen=True)
class Errand:
    """One run for one partition."""

    name: str
    """The same run is asked for by the same name, and no other has it."""
    address: Mapping[str, str]


def sent(work: Work, plan: Plan, recompute: Recompute) -> Recompute:
    """The recompute whose landing a run elsewhere fills."""
    transform = plan.spec.transform
    if not isinstance(transform, DagTransform):
        return recompute
    (partition,) = recompute.partitions

    def fill(landing: Landing) -> None:
        errand = _open(work, plan, partition) or _new(work, plan, partition, landing)
        told = {**transform.dag.conf, **told_of(partition, work.backfill_id), **errand.address}
        try:
            _wait(work, work.elsewhere(plan.spec), errand, told, transform.dag.poll_every.total_seconds())
            landing.collect(errand.address)
        except BaseException as error:  # an execution_timeout, or a kill, is none of Exception's
            _over(work, partition, errand, f"{type(error).__name__}: {error}")
            raise
        _over(work, partition, errand, "its rows were taken")

    return replace(recompute, fill=fill)


def _wait(work: Work, elsewhere: Elsewhere, errand: Errand, told: Mapping[str, Any], poll_every: float) -> None:
    """Wait until the run is over.

    :raises CodeFailed: it failed, or nobody could tell.
    :raises Stopped: a stop signal is set; the run was cancelled.
    """
    handle = elsewhere.submit(errand.name, told)
    work.log.info("Waiting for %s.", errand.name)
    try:
        while not (progress := elsewhere.look(handle)).is_over:
            work.pause(poll_every)
            work.check_stop()
    except BaseException as error:
        try:
            elsewhere.cancel(handle)
        except BackfillError as unheard:
            work.log.warning("%s goes on, and what it gives is not taken: %s", errand.name, unheard)
        if isinstance(error, Stopped):
            work.halt(str(error))
        raise
    if progress.failure:
        raise CodeFailed(f"{errand.name} failed: {progress.failure} Nothing of it was kept.")


def _open(work: Work, plan: Plan, partition: Partition) -> Errand | None:
    """The run that a killed worker waited for, under the same intent; None when there is none."""
    over = {event.detail["name"] for event in work.ledger.events(work.backfill_id, OVER_EVENT)}
    for event in reversed(work.ledger.events(work.backfill_id, SENT_EVENT)):
        detail = event.detail
        if detail["key"] == partition.key and detail["name"] not in over:
            if detail["intent"] != plan.intent_hash:
                return None
            work.log.info("Going on with %s, which an earlier attempt began.", detail["name"])
            return Errand(detail["name"], detail["address"])
    return None


def _new(work: Work, plan: Plan, partition: Partition, landing: Landing) -> Errand:
    """The next run of the partition, on record before it is submitted: whoever comes next asks for the same."""
    before = [one for one in work.ledger.events(work.backfill_id, SENT_EVENT) if one.detail["key"] == partition.key]
    name = f"safe_backfill__{work.backfill_id}__{_plain(partition.key)}__{len(before) + 1}"
    errand = Errand(name, dict(landing.address))
    detail = {"key": partition.key, "name": name, "address": errand.address, "intent": plan.intent_hash}
    work.ledger.record_event(work.backfill_id, SENT_EVENT, by=work.by, detail=detail)
    return errand


def _over(work: Work, partition: Partition, errand: Errand, reason: str) -> None:
    detail = {"key": partition.key, "name": errand.name, "reason": reason[:500]}
    work.ledger.record_event(work.backfill_id, OVER_EVENT, by=work.by, detail=detail)


def _plain(key: str) -> str:
    """The key as part of a run's id; one that has other characters is told apart by its hash."""
    plain = re.sub(r"[^A-Za-z0-9_.~+-]", "_", key)
    return plain if plain == key else f"{plain}_{sha256(key.encode()).hexdigest()[:8]}"
