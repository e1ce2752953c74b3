"""A shop that a hand-written DAG corrects: one DuckDB file, one ledger, both known to Airflow by connections."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb_outside
from airflow.sdk import DAG

import airflow_backfill_provider
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.operators.atomic_publish import AtomicPublishOperator
from airflow_backfill_provider.operators.base import AnySpec
from airflow_backfill_provider.operators.report import ReportOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.operators.stage_recompute import StageRecomputeOperator
from airflow_backfill_provider.operators.validate_partition import ValidatePartitionOperator, ValidateRangeOperator
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.spec.model import BackfillSpec

ROOT = Path(airflow_backfill_provider.__file__).parents[1]
SPEC = """\
name: orders
target: {table: analytics.orders, partition_by: order_date, key: [order_id]}
transform: {sql: orders.sql}
compute: {conn_id: shop, max_concurrency: 2, partitions_per_task: 2}
compare: [row_diff: {max_added: 0, max_removed: 0}]
"""
SQL = """\
SELECT order_id, order_date, amount / 2 AS amount FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
"""

OF_THE_DAY = {"start_date": "{{ data_interval_start | ds }}", "end_date": "{{ data_interval_start | ds }}"}


@dataclass(frozen=True)
class Shop:
    """Ten days of March 2024 published at twice the right amount."""

    folder: Path

    @property
    def spec_file(self) -> Path:
        return self.folder / "orders.yaml"

    @property
    def spec(self) -> BackfillSpec:
        return load_spec(self.spec_file)

    def ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.folder / 'ledger.db'}")

    def airflow(self, *words: str, program: tuple[str, ...] = ("-m", "airflow")) -> subprocess.CompletedProcess[str]:
        """Airflow's own command line, in a process of its own; its database is empty unless a test migrates it."""
        env = {**os.environ, "AIRFLOW_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *program, *words]
        return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)

    def corrected(self) -> list[int]:
        """The days of March 2024 that hold the right amounts."""
        days = "SELECT day(order_date) FROM analytics.orders WHERE amount = 5 GROUP BY 1 ORDER BY 1"
        return [day for (day,) in duckdb_outside.run(self.folder / "shop.duckdb", days)]


def wired(spec: AnySpec, **scope: Any) -> DAG:
    """A whole backfill, wired by hand; the scope task is ``plan_it``, the last one ``tell``."""
    with DAG("by_hand", schedule=None) as dag:
        scoped = ScopePartitionsOperator(task_id="plan_it", spec=spec, **scope)
        stage = StageRecomputeOperator.partial(task_id="stage", spec=spec).expand(batch=scoped.output)
        judge = ValidatePartitionOperator.partial(task_id="judge", spec=spec).expand(batch=scoped.output)
        whole = ValidateRangeOperator(task_id="whole", spec=spec)
        publish = AtomicPublishOperator(task_id="publish", spec=spec)
        scoped >> stage >> judge >> whole >> publish >> ReportOperator(task_id="tell", spec=spec)
    return dag
