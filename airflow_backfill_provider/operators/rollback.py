"""RollbackOperator: restore exactly the published range from its backup."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.operators.base import BackfillOperator


class RollbackOperator(BackfillOperator):
    """Restore the range of one published backfill in one commit; rows outside it stay as they are.

    The backfill is the conf's ``backfill_id``. Refuses when the range is no longer what was published, unless the
    conf says ``force``; a second run does nothing. The kill switch does not hold it back.
    """

    ui_color = "#f5dcdc"
    heeds_stop_signals = False

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.rollback import rollback

        with self.work(context) as work:
            result = rollback(work, force=bool(context["params"].get("force", False)))
            self.log.info("%s: %s rows deleted, %s inserted.", result.note, result.deleted, result.inserted)
            return asdict(result)
