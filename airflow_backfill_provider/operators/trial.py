"""TrialOperator: one partition is tried, and the control period held, before the others are computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_backfill_provider.operators.base import BackfillOperator
from airflow_backfill_provider.spec.request import Mode


class TrialOperator(BackfillOperator):
    """Compute one partition twice, publish it and roll it back on a copy; its staged rows are kept for the backfill.

    Fails when the two runs differ, when a publish or its undo do not do what they should, or when ``transform.scope:
    range`` gives other rows. What passed under the same plan is not tried again. Skipped when there is nothing to run: a
    preview, or an empty range. Tries nothing when the spec says ``trial: {enabled: false}``. Where the spec has a
    ``control_period``, its partitions are recomputed aside then, and it fails when they are not as they are published.
    """

    ui_color = "#dce9f5"

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.control_period import hold_control
        from airflow_backfill_provider.steps.trial import try_partition

        with self.work(context) as work:
            if self.mode(context) is Mode.PLAN or work.ledger.find_backfill(work.backfill_id) is None:
                raise AirflowSkipException("Nothing was planned to run: a preview, or no partition in the range.")
            result = try_partition(work)
            self.log.info("%s", result.note)
            hold_control(work)
            return asdict(result)
