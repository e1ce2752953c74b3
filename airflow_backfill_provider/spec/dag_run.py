"""A DAG of the team's own, triggered once for each partition that it recomputes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated

from pydantic import Field, JsonValue, field_validator

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.names import Identifier
from airflow_backfill_provider.spec.quantities import Duration

TOLD = (
    "staging_table",
    "staging_file",
    "partition_key",
    "partition_start",
    "partition_end",
    "partition_value",
    "backfill_id",
)
"""What work elsewhere is told of its partition, and nobody else may call so."""


class DagRunSpec(Frozen):
    """Which DAG, and what it is told beside the partition."""

    dag_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.~-]+$", max_length=250)]
    conf: dict[str, JsonValue] = Field(default_factory=dict)
    """What each run gets in its conf, beside the partition's bounds and where its rows go."""
    poll_every: Duration = timedelta(seconds=10)
    """How often to look whether a run is over."""
    api_conn_id: Identifier | None = None
    """A connection to Airflow's own API (host, port, login, password), by which a run is marked failed when the backfill is
    stopped; without one it goes on, and what it gives is not taken."""

    @field_validator("conf")
    @classmethod
    def _free(cls, conf: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if taken := sorted(conf.keys() & set(TOLD)):
            raise ValueError(f"{', '.join(taken)} is what the backfill itself tells the run; take another name")
        try:
            json.dumps(conf, allow_nan=False)
        except ValueError as error:
            raise ValueError("conf is JSON; NaN and infinity are not") from error
        return conf
