"""A backfill wired by hand, for those whose DAG has to look otherwise than the factory's; and its way back.

Trigger ``example_backfill_by_hand`` with ``{"first": "2013-02-01", "last": "2013-02-28"}``.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_backfill_provider.operators.atomic_publish import AtomicPublishOperator
from airflow_backfill_provider.operators.report import ReportOperator
from airflow_backfill_provider.operators.rollback import RollbackOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.operators.stage_recompute import StageRecomputeOperator
from airflow_backfill_provider.operators.trial import TrialOperator
from airflow_backfill_provider.operators.validate_partition import ValidatePartitionOperator, ValidateRangeOperator

SPEC = Path(__file__).parent / "backfills" / "fct_flights.yaml"  # read when a task runs, not when this file is parsed
POOL = "safe_backfill"
DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

with DAG(
    "example_backfill_by_hand",
    schedule=None,
    is_paused_upon_creation=False,  # a paused DAG means stopped
    max_active_tasks=4,  # as many as the spec's max_concurrency
    params={
        "first": Param("2013-02-08", type="string", pattern=DATE),
        "last": Param("2013-02-09", type="string", pattern=DATE),
    },
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["safe-backfill"],
):
    scope = ScopePartitionsOperator(
        task_id="scope",
        spec=SPEC,
        request={
            "start_date": "{{ params.first }}",
            "end_date": "{{ params.last }}",
            "reason": "by hand, in {{ run_id }}",
        },
    )
    trial = TrialOperator(task_id="trial", spec=SPEC, pool=POOL)
    stage = StageRecomputeOperator.partial(
        task_id="stage",
        spec=SPEC,
        pool=POOL,
        map_index_template="{{ task.batch['label'] }}",
    ).expand(batch=scope.output)
    validate = ValidatePartitionOperator.partial(task_id="validate", spec=SPEC, pool=POOL).expand(batch=scope.output)
    validate_range = ValidateRangeOperator(task_id="validate_range", spec=SPEC, pool=POOL)
    publish = AtomicPublishOperator(task_id="publish", spec=SPEC, pool=POOL)
    report = ReportOperator(task_id="report", spec=SPEC)
    scope >> trial >> stage >> validate >> validate_range >> publish >> report

with DAG(
    "example_rollback_by_hand",
    schedule=None,
    is_paused_upon_creation=False,
    params={"backfill_id": Param(type="string", pattern="^[0-9a-f]{12}$"), "force": Param(False, type="boolean")},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["safe-backfill"],
):
    RollbackOperator(task_id="rollback", spec=SPEC, backfill_id="{{ params.backfill_id }}", force="{{ params.force }}")
