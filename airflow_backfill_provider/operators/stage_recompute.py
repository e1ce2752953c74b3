"""StageRecomputeOperator: recompute a batch of partitions where no consumer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.operators.base import BackfillOperator


class StageRecomputeOperator(BackfillOperator):
    """Stage every partition of a batch that is not staged yet under the plan's intent.

    Partitions that are staged already are reused, which is what makes clearing a resume. A failing partition does
    not lose the work of its batch-mates.

    :param batch: one entry of what ``ScopePartitionsOperator`` returned, ``{"label": …, "keys": […]}``; templated.
    """

    template_fields: Sequence[str] = (*BackfillOperator.template_fields, "batch")
    ui_color = "#dce9f5"
    stop_signal_age = 1.0
    runs_beside_others = True

    def __init__(self, *, batch: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batch = batch

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_backfill_provider.steps.stage import stage_batch

        with self.work(context) as work:
            return asdict(stage_batch(work, self.batch["keys"]))
