"""The way back as its doors open it, a task or a command: perhaps long after the spec or its connection changed."""

from __future__ import annotations

from airflow_backfill_provider.errors import PublishRefused, RequestError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.steps.overwritten import restore_overwritten
from airflow_backfill_provider.steps.restore import RollbackResult, require_backup, require_own
from airflow_backfill_provider.steps.rollback import rollback
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Backup, Fingerprint


def take_way_back(work: Work, through: str, *, force: bool = False, bring_back: bool = False) -> RollbackResult:
    """Roll the backfill back; or bring back what an earlier, forced rollback of it overwrote.

    :param through: the connection that leads to the work's warehouse. One that is not the plan's must lead to the backup.
    :raises RequestError: both are asked for at once; or the backfill is of another spec.
    :raises PublishRefused: what that connection leads to does not hold the backup; or as the rollback raises it.
    """
    if force and bring_back:
        raise RequestError(
            "force and restore_overwritten exclude each other: the second undoes the first. Nothing was written."
        )
    require_own(work)
    plan = work.stored_plan()
    if through != plan.spec.compute.conn_id:
        _require_its_warehouse(work, plan, through)
    return restore_overwritten(work) if bring_back else rollback(work, force=force)


def _require_its_warehouse(work: Work, plan: Plan, through: str) -> None:
    """Before anything is read of the table: the log of another one would say that nothing was ever published.

    :raises PublishRefused: nothing there shows that it is the warehouse that was published to.
    """
    backfill = work.ledger.backfill(work.backfill_id)
    claim = (
        f"Backfill {work.backfill_id} was planned for the connection {plan.spec.compute.conn_id!r}, and nothing shows that "
        f"{through!r} leads to the same warehouse"
    )
    if backfill.backup_location is None:
        raise PublishRefused(
            f"{claim}: the ledger knows no backup to tell it by. Nothing was written. Create the connection again under its old name."
        )
    marks = {key: Fingerprint(**mark) for key, mark in backfill.backup_fingerprints.items()}
    try:
        require_backup(work, plan, Backup(backfill.backup_location), plan.partitions, marks)
    except PublishRefused as refused:
        raise PublishRefused(
            f"{claim}. {refused} Name the connection that leads to where it was published, or create it again under its old name."
        ) from refused
