"""ValidatePartitionOperator and ValidateRangeOperator: judge staged rows against what they will replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.operators.base import BackfillOperator

if TYPE_CHECKING:
    from airflow_backfill_provider.checks.report import ValidationReport


class ValidatePartitionOperator(BackfillOperator):
    """Run every check and comparison on each staged partition of a batch, and record the evidence.

    A partition that was rejected before is staged again first, so clearing this task after mending the cause is
    enough. Fails when any partition is rejected, with one line per failing check.

    Pushes the XCom ``check_results``: at most 50 failures and warnings and one summary, as common-sql's
    ``SQLCheckResult`` has them; ``check_results`` of the operator holds the same for listeners. Never rows; keys of rows only where
    the spec says ``samples_in_report``.

    :param batch: one entry of what ``ScopePartitionsOperator`` returned, ``{"label": …, "keys": […]}``; templated.
    """

    template_fields: Sequence[str] = (*BackfillOperator.template_fields, "batch")
    ui_color = "#f5efdc"
    runs_beside_others = True

    def __init__(self, *, batch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batch = batch
        self.check_results: list[Any] = []

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.validate import validate_batch

        with self.work(context) as work:
            return asdict(validate_batch(work, self.batch["keys"], partial(_tell, self, context)))


class ValidateRangeOperator(BackfillOperator):
    """Judge the range as a whole: every partition validated, every key once in the table, every check over all rows.

    Pushes ``check_results`` as ``ValidatePartitionOperator`` does.
    """

    ui_color = "#f5efdc"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check_results: list[Any] = []

    def execute(self, context: Context) -> int:
        from airflow_backfill_provider.steps.validate import validate_range

        with self.work(context) as work:
            return validate_range(work, partial(_tell, self, context))


def _tell(
    operator: ValidatePartitionOperator | ValidateRangeOperator, context: Context, report: ValidationReport
) -> None:
    from airflow_backfill_provider.operators.check_results import push

    operator.check_results = push(context, report, operator.spec.target.table)
