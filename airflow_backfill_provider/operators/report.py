"""ReportOperator: say what came of the backfill, write it down, and fail unless it is good."""

from __future__ import annotations

from typing import Any

from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_backfill_provider.operators.base import BackfillOperator
from airflow_backfill_provider.operators.pool import skip_waiting
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.spec.request import Mode

PAGE = "report"
"""XCom key under which the address of the report's page is pushed."""


class ReportOperator(BackfillOperator):
    """Close the backfill, write its report and print its summary; the leaf that makes a failed backfill a failed run.

    A run's state is the state of its leaves, so this task runs always (``trigger_rule`` is ``all_done``) and fails
    unless the ledger says that the backfill reached what its mode asked for, and neither a task upstream nor the probe of
    the pool failed. A probe that still waits for a slot is skipped, whatever came of the scope: the run would never end. The
    report is written whatever came of the backfill; one that cannot be written is a warning and changes nothing.
    """

    heeds_stop_signals = False

    def __init__(self, *, trigger_rule: str = "all_done", **kwargs: Any) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)

    def execute(self, context: Context) -> list[str]:
        from airflow_backfill_provider.operators.report_files import try_to_write_report
        from airflow_backfill_provider.steps.pool_probe import record_probe
        from airflow_backfill_provider.steps.report import conclude

        is_left_out = self._end_probes(context)
        with self.work(context) as work:
            mode = self.mode(context)
            if mode is None or mode is Mode.PLAN or work.ledger.find_backfill(work.backfill_id) is None:
                return self._without_backfill(context)
            record_probe(work, is_left_out=is_left_out)
            summary = conclude(work)
            if (page := try_to_write_report(work.ledger, work.backfill_id)) is not None:
                context["ti"].xcom_push(key=PAGE, value=page)
            lines = summary.lines()
            self.log.info("%s", "\n".join(lines))
            if not summary.reached(mode):
                raise AirflowFailException("The backfill did not reach its goal.\n" + "\n".join(lines))
            if summary.drill is not None:  # the damaged partition's tasks failed, as they should
                return lines
            if broken := [task for task, state in self._states(context).items() if "failed" in state]:
                raise AirflowFailException(f"The backfill is done, but {', '.join(broken)} failed; clear it.")
            return lines

    def _without_backfill(self, context: Context) -> list[str]:
        """A preview, or an empty range, leaves nothing in the ledger; a scope that failed does neither."""
        states = self._states(context)
        if any(states.get(task_id) == "success" for task_id in self.scope_task_ids):
            raise AirflowSkipException("Nothing was planned to run: a preview, or no partition in the range.")
        where = ", ".join(self.scope_task_ids) or "it has no ScopePartitionsOperator of this spec upstream"
        raise AirflowFailException(f"No plan was made; see {where}.")

    def _end_probes(self, context: Context) -> bool:
        """Skip every probe that waits; whether a scope that failed has a skipped one, which "only what failed" leaves out."""
        states = self._states(context)
        skipped = [scope for scope, probe in self._probes.items() if skip_waiting(context, probe)]
        return any(states.get(scope) != "success" for scope in skipped)

    @property
    def _probes(self) -> dict[str, str]:
        """The probe of each scope task upstream, by the scope's task id; known without a spec that can be read."""
        scopes = [task for task in self.get_flat_relatives(upstream=True) if isinstance(task, ScopePartitionsOperator)]
        return {scope.task_id: scope.pool_probe for scope in scopes if scope.pool_probe is not None}

    def _states(self, context: Context) -> dict[str, str]:
        """The state of every task upstream in this run, and of the probes, by task id (mapped ones with their index)."""
        run = context["dag_run"]
        watched = sorted({*self.get_flat_relative_ids(upstream=True), *self._probes.values()})
        states = context["ti"].get_task_states(dag_id=run.dag_id, run_ids=[run.run_id], task_ids=watched)
        return {task: getattr(state, "value", str(state)) for task, state in states.get(run.run_id, {}).items()}
