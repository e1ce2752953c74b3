"""Report queries: asked of the published table as it is, and as it would be once the staged rows are published."""

from __future__ import annotations

from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.report_query import judge_report_query
from airflow_backfill_provider.errors import TRANSIENT, BackfillError
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.metric import Scalar
from airflow_backfill_provider.spec_fit import afterwards
from airflow_backfill_provider.steps.work import Work
from airflow_backfill_provider.warehouses.base import Staged


def ask_report_queries(work: Work, plan: Plan, staged: Staged) -> list[Outcome]:
    """Whether each number moves as far as the spec expects; ``staged`` is the whole range."""
    outcomes = []
    for query in plan.spec.report_queries:
        text = afterwards(query, plan.target, plan.dialect)
        old, new = (_value(work, plan, rows, text) for rows in (Staged(()), staged))
        outcomes.append(judge_report_query(query, old, new))
    return outcomes


def _value(work: Work, plan: Plan, staged: Staged, query: str) -> Scalar | Exception:
    try:
        return work.warehouse.one_value(plan.target, staged, query)
    except TRANSIENT:
        raise
    except BackfillError as error:
        return error
