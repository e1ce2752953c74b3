"""RollbackOperator: restore exactly the published range from its backup."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.operators.base import BackfillOperator


class RollbackOperator(BackfillOperator):
    """Restore the range of one published backfill in one commit; rows outside it stay as they are.

    Refuses when the range is no longer what was published, unless ``force``; a second run does nothing. The kill
    switch does not hold it back. The backfill's report is written again.

    :param force: restore even though the range changed since; what gets overwritten is backed up. True, false, or
        text that renders to one of them; templated. Left out, it is the conf's ``force``, or false.
    :param restore_overwritten: bring back what an earlier forced rollback overwrote, instead. Written as ``force`` is.
    """

    template_fields = (*BackfillOperator.template_fields, "force", "restore_overwritten")
    ui_color = "#f5dcdc"
    heeds_stop_signals = False

    def __init__(
        self, *, force: bool | str | None = None, restore_overwritten: bool | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.force = force
        self.restore_overwritten = restore_overwritten

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.operators.report_files import try_to_write_report
        from airflow_backfill_provider.steps.overwritten import restore_overwritten
        from airflow_backfill_provider.steps.rollback import rollback

        with self.work(context) as work:
            force = self._asked(context, "force")
            bring_back = self._asked(context, "restore_overwritten")
            if force and bring_back:
                raise RequestError(
                    "force and restore_overwritten exclude each other: the second undoes the first. Nothing was written."
                )
            try:
                result = restore_overwritten(work) if bring_back else rollback(work, force=force)
            finally:
                try_to_write_report(work.ledger, work.backfill_id)
            self.log.info("%s: %s rows deleted, %s inserted.", result.note, result.deleted, result.inserted)
            if result.write_block_seconds is not None:
                self.log.info("Nobody else could write the table for %.1f s.", result.write_block_seconds)
            return asdict(result)

    def _asked(self, context: Context, name: str) -> bool:
        own = getattr(self, name)
        written = context["params"].get(name, False) if own is None else own
        flag = {"true": True, "false": False}.get(str(written).strip().lower())
        if flag is None:
            raise RequestError(f"{name} is {written!r}; it must be true or false. Nothing was written.")
        return flag
