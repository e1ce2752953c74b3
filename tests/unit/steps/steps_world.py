"""A small published table with a known mistake in it, and the steps to mend it, on a real engine and a real ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from contract_engines import Engine

from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.steps.control_period import hold_control
from airflow_backfill_provider.steps.controlled import Control
from airflow_backfill_provider.steps.overwritten import restore_overwritten
from airflow_backfill_provider.steps.publish import PublishResult, publish
from airflow_backfill_provider.steps.report import Summary, conclude
from airflow_backfill_provider.steps.restore import RollbackResult
from airflow_backfill_provider.steps.rollback import rollback
from airflow_backfill_provider.steps.scope import Run, Scoped, scope
from airflow_backfill_provider.steps.stage import StageResult, stage_batch
from airflow_backfill_provider.steps.trial import TrialResult, try_partition
from airflow_backfill_provider.steps.validate import validate_batch, validate_range
from airflow_backfill_provider.steps.work import Work, go_on
from airflow_backfill_provider.warehouses.base import Warehouse

NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)

# Refunded orders were published with their amount; the right amount of a refunded order is none.
RIGHT = """
SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount, note
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
"""

DAYS = tuple(f"2024-03-{day:02d}" for day in range(1, 11))
PER_DAY = 6


def make_spec(**changes: Any) -> BackfillSpec:
    """The spec of the correction; ``changes`` replace whole sections."""
    document: dict[str, Any] = {
        "name": "orders",
        "target": {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]},
        "transform": {"sql": RIGHT},
        "compute": {"conn_id": "warehouse", "partitions_per_task": 4},
        "source": {"table": "raw.orders", "partition_by": "order_date"},
        "checks": [{"not_null": {"column": "order_id"}}],
        "compare": [{"row_count": {"against": "source", "max_abs_change": 0}}, {"row_diff": {"max_added": 0}}],
        "publish": {"lock_timeout": "2s"},
    }
    return BackfillSpec.model_validate(document | changes)


def fill(engine: Engine) -> None:
    """Ten days published under the wrong rule, their source, and rows around them that must never change."""
    rows, raw = [], []
    for number, day in enumerate(DAYS):
        for place in range(PER_DAY):
            order = number * 100 + place
            refunded = place == 0
            raw.append(f"({order}, DATE '{day}', {order + 10}, 'note {order}', {'TRUE' if refunded else 'FALSE'})")
            rows.append(f"({order}, DATE '{day}', {order + 10}, 'note {order}')")
    rows += ["(9001, DATE '2024-02-29', 1, 'before')", "(9002, DATE '2024-03-11', 2, 'after')"]
    rows += ["(9003, CAST(NULL AS DATE), 3, 'nowhere')"]
    kinds = engine.types
    common = f"order_id {kinds['integer']}, order_date {kinds['date']}, amount {kinds['integer']}, note {kinds['text']}"
    engine.execute(
        "CREATE SCHEMA IF NOT EXISTS analytics",
        "CREATE SCHEMA IF NOT EXISTS raw",
        f"CREATE TABLE analytics.orders ({common})",
        f"CREATE TABLE raw.orders ({common}, refunded {kinds['flag']})",
        f"INSERT INTO analytics.orders VALUES {', '.join(rows)}",
        f"INSERT INTO raw.orders VALUES {', '.join(raw)}",
    )


def fill_behind_view(engine: Engine) -> None:
    """The same, with the published rows in ``orders__v1`` and ``orders`` a view of it."""
    fill(engine)
    engine.execute(
        "CREATE TABLE analytics.orders__v1 AS SELECT * FROM analytics.orders",
        "DROP TABLE analytics.orders",
        "CREATE VIEW analytics.orders AS SELECT * FROM analytics.orders__v1",
    )


@dataclass
class World:
    """One engine, one ledger, and every step as one call."""

    engine: Engine
    warehouse: Warehouse
    ledger: Ledger
    spec: BackfillSpec = field(default_factory=make_spec)
    run_id: str = "run 1"
    check_stop: Callable[[], None] = go_on
    now: datetime = NOW
    requester: str = "ann"
    clears: int = 0

    def work(self, backfill: str | None = None) -> Work:
        """The work of this run, or of another backfill by id; each is of a task that was cleared, so no failure holds it back."""
        self.clears += 1
        return Work(
            spec=self.spec,
            backfill_id=backfill or self.id,
            warehouse=self.warehouse,
            ledger=self.ledger,
            by="tester",
            check_stop=lambda: self.check_stop(),
            now=lambda: self.now,
            run_id=self.run_id,
            clear_number=self.clears,
        )

    @property
    def id(self) -> str:
        """The id of this run's backfill."""
        return backfill_id("backfill__orders", self.run_id)

    def scope(self, **conf: Any) -> Scoped:
        """Scope this run; March 1 to 10 unless the conf says otherwise."""
        if not {"start_date", "partitions", "backfill_id"} & set(conf):
            conf = {"start_date": DAYS[0], "end_date": DAYS[-1]} | conf
        request = Request.from_conf(conf)
        return scope(self.work(request.backfill_id), request, Run("backfill__orders", self.run_id, self.requester))

    def try_one(self, backfill: str | None = None) -> TrialResult:
        return try_partition(self.work(backfill))

    def hold_control(self, backfill: str | None = None) -> tuple[Control, ...]:
        return hold_control(self.work(backfill))

    def stage(self, scoped: Scoped) -> list[StageResult]:
        return [stage_batch(self.work(scoped.plan.backfill_id), batch.keys) for batch in scoped.batches]

    def validate(self, scoped: Scoped) -> None:
        for batch in scoped.batches:
            validate_batch(self.work(scoped.plan.backfill_id), batch.keys)
        validate_range(self.work(scoped.plan.backfill_id))

    def prepare(self, **conf: Any) -> Scoped:
        """Everything up to the publish."""
        scoped = self.scope(**conf)
        self.stage(scoped)
        self.validate(scoped)
        return scoped

    def publish(self, backfill: str | None = None) -> PublishResult:
        return publish(self.work(backfill))

    def rollback(
        self, backfill: str | None = None, *, force: bool = False, publish_is_dead: bool = False
    ) -> RollbackResult:
        return rollback(replace(self.work(backfill), publish_is_dead=lambda: publish_is_dead), force=force)

    def restore_overwritten(self, backfill: str | None = None) -> RollbackResult:
        return restore_overwritten(self.work(backfill))

    def run(self, **conf: Any) -> Summary:
        """The whole life."""
        scoped = self.prepare(**conf)
        publish(self.work(scoped.plan.backfill_id))
        return conclude(self.work(scoped.plan.backfill_id))

    def amounts(self, day: str) -> dict[int, int | None]:
        """Published amounts of a day, by order."""
        rows = self.engine.rows(f"SELECT order_id, amount FROM analytics.orders WHERE order_date = DATE '{day}'")
        return dict(sorted(rows))

    def published(self) -> list[tuple[Any, ...]]:
        """Every published row, in a stable order."""
        return sorted(self.engine.rows("SELECT order_id, order_date, amount, note FROM analytics.orders"), key=repr)

    def outside(self) -> list[tuple[Any, ...]]:
        """The rows that no backfill of March 1 to 10 may touch."""
        return [row for row in self.published() if row[0] >= 9000]
