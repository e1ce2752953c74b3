"""ValidatePartitionOperator and ValidateRangeOperator: judge staged rows against what they will replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.operators.base import BackfillOperator


class ValidatePartitionOperator(BackfillOperator):
    """Run every check and comparison on each staged partition of a batch, and record the evidence.

    A partition that was rejected before is staged again first, so clearing this task after mending the cause is
    enough. Fails when any partition is rejected, with one line per failing check.

    :param batch: one entry of what ``ScopePartitionsOperator`` returned, ``{"label": …, "keys": […]}``; templated.
    """

    template_fields: Sequence[str] = (*BackfillOperator.template_fields, "batch")
    ui_color = "#f5efdc"
    runs_beside_others = True

    def __init__(self, *, batch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batch = batch

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.validate import validate_batch

        with self.work(context) as work:
            return asdict(validate_batch(work, self.batch["keys"]))


class ValidateRangeOperator(BackfillOperator):
    """Judge the range as a whole: every partition validated, every key once in the table."""

    ui_color = "#f5efdc"

    def execute(self, context: Context) -> int:
        from airflow_backfill_provider.steps.validate import validate_range

        with self.work(context) as work:
            return validate_range(work)
