"""AtomicPublishOperator: the whole validated range in one commit, or not at all."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_backfill_provider.operators.base import BackfillOperator, airflow_errors
from airflow_backfill_provider.spec.request import Mode


class AtomicPublishOperator(BackfillOperator):
    """Replace the range by its validated rows in one commit, with a backup taken before.

    Run again after a crash it finds its own receipt in the table and publishes nothing twice. Skipped when the
    mode that the scope task upstream was given is not ``publish``; without a scope task it publishes.
    """

    ui_color = "#e4dcf5"

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.publish import publish

        with airflow_errors():
            mode = self.mode(context)
        if mode is None:
            scope = ", ".join(self.scope_task_ids)
            raise AirflowFailException(f"How far this run goes is not known: {scope} has not said it. Clear {scope}.")
        if mode is not Mode.PUBLISH:
            raise AirflowSkipException(f"mode is {mode}; publish later with the same backfill_id and mode publish")
        with self.work(context) as work:
            result = publish(work)
            self.log.info("%s: %s rows deleted, %s inserted.", result.note, result.deleted, result.inserted)
            if result.write_block_seconds is not None:
                self.log.info("Nobody else could write the table for %.1f s.", result.write_block_seconds)
            return asdict(result)
