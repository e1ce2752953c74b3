"""`safe-backfill rollback`: the way back by id alone, whatever became of the spec and of its DAGs."""

from __future__ import annotations

import getpass
from argparse import Namespace
from contextlib import closing

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.connections import is_connection, open_ledger, warehouse_to_end
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.operators.report_files import try_to_write_report
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.way_back import take_way_back
from airflow_backfill_provider.steps.work import Work


def rollback(args: Namespace) -> None:
    """Restore what one backfill published, as the task of its rollback DAG does, by the plan in the ledger alone."""
    with plain_errors(), open_ledger() as ledger:
        planned = stored_plan(ledger, args.backfill_id).spec
        through = args.conn_id or _planned_connection(planned, args.backfill_id)
        with closing(warehouse_to_end(planned, through)) as warehouse:
            by = f"{getpass.getuser()} via cli"
            is_dead = args.publish_is_dead
            work = Work(planned, args.backfill_id, warehouse, ledger, by, publish_is_dead=lambda: is_dead)
            try:
                result = take_way_back(work, through, force=args.force, bring_back=args.restore_overwritten)
            finally:
                page = try_to_write_report(ledger, args.backfill_id)
        print(f"{planned.target.table}, {result.partitions} partitions: {result.note}.")
        print(f"{result.deleted} rows deleted, {result.inserted} inserted.")
        if result.write_block_seconds is not None:
            print(f"Nobody else could write the table for {result.write_block_seconds:.1f} s.")
        print(f"Backfill {args.backfill_id} is {ledger.backfill(args.backfill_id).state}.")
        if page is not None:
            print(f"Report: {page}")


def _planned_connection(planned: BackfillSpec, backfill_id: str) -> str:
    """:raises SpecError: there is no such connection any more."""
    conn_id = planned.compute.conn_id
    if not is_connection(conn_id):
        raise SpecError(
            f"Backfill {backfill_id} was planned for the connection {conn_id!r}, and there is no such Airflow connection any more. "
            "Nothing was written. If it was renamed, name the new one, which must lead to the same warehouse: "
            f"airflow safe-backfill rollback {backfill_id} --conn-id …"
        )
    return conn_id
