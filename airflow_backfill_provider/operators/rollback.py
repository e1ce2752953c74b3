"""RollbackOperator: restore exactly the published range from its backup."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.operators.base import BackfillOperator

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.store import Ledger
    from airflow_backfill_provider.warehouses.base import Warehouse


class RollbackOperator(BackfillOperator):
    """Restore the range of one published backfill in one commit; rows outside it stay as they are.

    Refuses when the range is no longer what was published, unless ``force``; a second run does nothing. The kill
    switch does not hold it back. The backfill's report is written again. Connection and timeouts are those of the plan
    that published, whatever the spec says by now; the spec's connection is used where the plan's is gone from Airflow,
    and has to lead to the backup.

    :param force: restore even though the range changed since; what gets overwritten is backed up. True, false, or
        text that renders to one of them; templated. Left out, it is the conf's ``force``, or false.
    :param restore_overwritten: bring back what an earlier forced rollback overwrote, instead. Written as ``force`` is.
    :param publish_is_dead: its publish was cut off, and neither its task nor a statement of it runs any more. Written as
        ``force`` is. Only for what Airflow cannot tell: where the task that publishes is not at work, that is known without.
    """

    template_fields = (*BackfillOperator.template_fields, "force", "restore_overwritten", "publish_is_dead")
    ui_color = "#f5dcdc"
    heeds_stop_signals = False

    def __init__(
        self,
        *,
        force: bool | str | None = None,
        restore_overwritten: bool | str | None = None,
        publish_is_dead: bool | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.force = force
        self.restore_overwritten = restore_overwritten
        self._through = ""
        self.publish_is_dead = publish_is_dead

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.operators.at_work import nobody_is_at_work
        from airflow_backfill_provider.operators.report_files import try_to_write_report
        from airflow_backfill_provider.steps.way_back import take_way_back

        with self.work(context) as work:
            force = self._asked(context, "force")
            bring_back = self._asked(context, "restore_overwritten")
            is_dead = self._asked(context, "publish_is_dead")
            ledger, found = work.ledger, work.backfill_id
            work = replace(work, publish_is_dead=lambda: is_dead or nobody_is_at_work(context, ledger, found))
            try:
                result = take_way_back(work, self._through, force=force, bring_back=bring_back)
            finally:
                try_to_write_report(work.ledger, work.backfill_id)
            self.log.info("%s: %s rows deleted, %s inserted.", result.note, result.deleted, result.inserted)
            if result.write_block_seconds is not None:
                self.log.info("Nobody else could write the table for %.1f s.", result.write_block_seconds)
            return asdict(result)

    def open_warehouse(self, ledger: Ledger, backfill_id: str) -> Warehouse:
        from airflow_backfill_provider.connections import is_connection, warehouse_to_end
        from airflow_backfill_provider.steps.stored import stored_plan

        planned, own = stored_plan(ledger, backfill_id).spec, self.spec.compute.conn_id
        self._through = planned.compute.conn_id
        if own != self._through and not is_connection(self._through):
            self.log.warning(
                "There is no Airflow connection %r any more, for which backfill %s was planned; %r of the spec is used, if it "
                "leads to the backup.",
                self._through,
                backfill_id,
                own,
            )
            self._through = own
        return warehouse_to_end(planned, self._through)

    def _asked(self, context: Context, name: str) -> bool:
        own = getattr(self, name)
        written = context["params"].get(name, False) if own is None else own
        flag = {"true": True, "false": False}.get(str(written).strip().lower())
        if flag is None:
            raise RequestError(f"{name} is {written!r}; it must be true or false. Nothing was written.")
        return flag
