"""CleanUpOperator: drop what backfills left aside once its time is over, in every warehouse that the ledger knows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowException

from airflow_backfill_provider.operators.base import actor, airflow_errors
from airflow_backfill_provider.operators.stop import stop_signal
from airflow_backfill_provider.switch import ALL


class CleanUpOperator(BaseOperator):
    """Drop stages, shadows, backups and old versions whose time is over, as the specs of their backfills say.

    What a backfill that is not over may still need is never dropped, nor what the ledger does not know. What cannot be
    dropped does not keep the rest, and fails the task at the end. A stop of every backfill holds it back as well.

    Returns one line per thing that was dropped.

    :param conn_ids: connections of warehouses; templated. Left out, every one that a backfill was ever opened with and
        that this Airflow has: installations that share a ledger each clean up their own.
    """

    template_fields: Sequence[str] = ("conn_ids",)
    ui_color = "#f4f4f4"

    def __init__(self, *, conn_ids: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_ids = conn_ids

    def execute(self, context: Context) -> list[str]:
        from airflow_backfill_provider.connections import is_connection, open_ledger, warehouse_at
        from airflow_backfill_provider.steps.cleanup import clean_up_all

        by = f"{actor(context)} via {context['ti'].task_id} of {context['dag_run'].run_id}"
        now = datetime.now(UTC)
        with airflow_errors(), open_ledger() as ledger:
            dropped, failed = clean_up_all(
                ledger,
                self.conn_ids,
                warehouse_at,
                now=now,
                by=by,
                check_stop=stop_signal(context, ALL),
                is_known=is_connection,
            )
        lines = [one.line(now) for one in dropped]
        for line in lines:
            self.log.info("Dropped: %s", line)
        if failed:
            raise AirflowException(" ".join([*failed, f"{len(dropped)} others were dropped."]))
        return lines
