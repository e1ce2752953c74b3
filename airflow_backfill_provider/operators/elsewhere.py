"""From a spec's transform to where its runs are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import DagTransform, DatabricksJobTransform

if TYPE_CHECKING:
    from airflow_backfill_provider.recompute import Elsewhere


def elsewhere_of(spec: BackfillSpec, context: Context) -> Elsewhere:
    """Where the runs of the spec's transform are.

    :raises TransformRefused: it has none.
    """
    match spec.transform:
        case DagTransform():
            from airflow_backfill_provider.operators.dag_runs import DagRuns

            return DagRuns(spec.transform.dag, context)
        case DatabricksJobTransform():
            from airflow_backfill_provider.operators.databricks_runs import DatabricksRuns

            return DatabricksRuns(spec.transform.databricks_job, spec.compute.conn_id)
        case other:
            raise TransformRefused(f"The {other.origin} does not run elsewhere.")
