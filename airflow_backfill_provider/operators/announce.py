"""AnnouncePublishOperator: tell Airflow's assets what was published."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import JsonValue

from airflow_backfill_provider.ledger.states import WRITTEN
from airflow_backfill_provider.operators.base import BackfillOperator, read_spec


class AnnouncePublishOperator(BackfillOperator):
    """Emit one asset event per published partition key, and one without a key on a second asset.

    Two assets, because an event with a partition key does not trigger a plain ``schedule=[asset]`` consumer:
    ``safe-backfill://<table>`` for those, ``safe-backfill://<table>/partitions`` for partitioned ones. Skipped when
    nothing was published, or no longer is, so that no consumer is woken for nothing.

    The spec is read while the DAG file is parsed: the assets have its table's name.

    :param published: what ``AtomicPublishOperator`` returned; templated.
    """

    template_fields = (*BackfillOperator.template_fields, "published")
    heeds_stop_signals = False

    def __init__(self, *, published: Any, **kwargs: Any) -> None:
        spec = read_spec(kwargs.pop("spec"))
        self.whole, self.partitions = assets(spec.target.table)
        super().__init__(spec=spec, outlets=[self.whole, self.partitions], **kwargs)
        self.published = published

    def execute(self, context: Context) -> int:
        nothing = AirflowSkipException("Nothing was published, so there is nothing to announce.")
        if not (self.published and self.published["published"]):  # a publish that did not run returned nothing
            raise nothing
        with self.work(context) as work:
            if work.ledger.backfill(work.backfill_id).state not in WRITTEN:  # it returned that the last time it ran
                raise nothing
            keys = list(work.ledger.partitions(work.backfill_id))
            extra: dict[str, JsonValue] = {
                "backfill_id": work.backfill_id,
                "action": "publish",
                "partitions": len(keys),
            }
        events = context["outlet_events"]
        events[self.whole].extra = extra
        events[self.partitions].extra = extra
        events[self.partitions].add_partitions(keys)
        return len(keys)


def assets(table: str) -> tuple[Asset, Asset]:
    """The asset of a table for plain consumers, and the one for consumers of its partitions."""
    uri = f"safe-backfill://{table}"
    return Asset(name=f"{table} (backfill)", uri=uri), Asset(
        name=f"{table} (backfilled partitions)", uri=f"{uri}/partitions"
    )
