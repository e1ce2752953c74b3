"""AnnouncePublishOperator: tell Airflow's assets what was published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import JsonValue

from airflow_backfill_provider.ledger.states import WRITTEN
from airflow_backfill_provider.operators.base import BackfillOperator, read_spec

if TYPE_CHECKING:
    from airflow_backfill_provider.plan import Plan

ANNOUNCED = "safe-backfill"
"""The scheme of the assets that backfills announce."""


class AnnouncePublishOperator(BackfillOperator):
    """Emit one asset event per published partition key, and one without a key on a second asset.

    Two assets, because an event with a partition key does not trigger a plain ``schedule=[asset]`` consumer:
    ``safe-backfill://<table>`` for those, ``safe-backfill://<table>/partitions`` for partitioned ones. Skipped when
    nothing was published, or no longer is, so that no consumer is woken for nothing.

    Airflow writes all events of a task in the request that ends it, which it gives up and sends again after 5 seconds. At some 12 ms
    an event that is enough for a batch, and not for thousands of partitions: map over the batches, as the factory does. A
    task mapped so needs ``outlets=assets(table)`` in its ``partial``.

    The spec is read while the DAG file is parsed: the assets have its table's name.

    :param published: what ``AtomicPublishOperator`` returned; templated.
    :param batch: one entry of what ``ScopePartitionsOperator`` returned; templated. Left out, all partitions are announced at once.
    """

    template_fields = (*BackfillOperator.template_fields, "published", "batch")
    heeds_stop_signals = False

    def __init__(self, *, published: Any, batch: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        spec = read_spec(kwargs.pop("spec"))
        self.whole, self.partitions = assets(spec.target.table)
        super().__init__(spec=spec, **kwargs | {"outlets": [self.whole, self.partitions]})
        self.published = published
        self.batch = batch

    def execute(self, context: Context) -> int:
        nothing = AirflowSkipException("Nothing was published, so there is nothing to announce.")
        if not (self.published and self.published["published"]):  # a publish that did not run returned nothing
            raise nothing
        with self.work(context) as work:
            if work.ledger.backfill(work.backfill_id).state not in WRITTEN:  # it returned that the last time it ran
                raise nothing
            plan = work.plan()
            extra: dict[str, JsonValue] = {
                "backfill_id": work.backfill_id,
                "action": "publish",
                "partitions": len(plan.keys),
            }
        keys, is_first = self._keys(plan)
        events = context["outlet_events"]
        if is_first:
            events[self.whole].extra = extra
        else:
            self.outlets = [self.partitions]  # an outlet of which a task says nothing gets an event all the same
        events[self.partitions].extra = extra
        events[self.partitions].add_partitions(keys)
        return len(keys)

    def _keys(self, plan: Plan) -> tuple[list[str], bool]:
        """What this task announces, and whether it speaks for the whole; the first batch speaks for the live partitions too."""
        if self.batch is None:
            return list(plan.keys), True
        dealt = [batch.keys for batch in plan.batches()]
        keys = list(self.batch["keys"])
        is_first = dealt[0][0] in keys
        if is_first:
            keys += sorted(set(plan.keys).difference(*dealt))
        return keys, is_first


def assets(table: str) -> tuple[Asset, Asset]:
    """The asset of a table for plain consumers, and the one for consumers of its partitions."""
    uri = f"{ANNOUNCED}://{table}"
    return Asset(name=f"{table} (backfill)", uri=uri), Asset(
        name=f"{table} (backfilled partitions)", uri=f"{uri}/partitions"
    )
