"""A shop that a hand-written DAG corrects: one DuckDB file, one ledger, both known to Airflow by connections."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.spec.model import BackfillSpec

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

    def corrected(self) -> list[int]:
        """The days of March 2024 that hold the right amounts."""
        with duckdb.connect(str(self.folder / "shop.duckdb")) as connection:
            return [
                day
                for (day,) in connection.execute(
                    "SELECT day(order_date) FROM analytics.orders WHERE amount = 5 GROUP BY 1 ORDER BY 1"
                ).fetchall()
            ]
