"""A DAG of the team's own, triggered once for each partition that it recomputes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, JsonValue, field_validator

from airflow_backfill_provider.spec.elsewhere import ElsewhereSpec
from airflow_backfill_provider.spec.names import Identifier


class DagRunSpec(ElsewhereSpec):
    """Which DAG, and what it is told beside the partition."""

    dag_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.~-]+$", max_length=250)]
    conf: dict[str, JsonValue] = Field(default_factory=dict)
    """What each run gets in its conf, beside the partition's bounds and where its rows go."""
    api_conn_id: Identifier | None = None
    """A connection to Airflow's own API (host, port, login, password), by which a run is marked failed when the backfill is
    stopped; without one it goes on, and what it gives is not taken."""

    @property
    def extras(self) -> Mapping[str, Any]:
        return self.conf

    @property
    def call(self) -> str:
        return f"{self.dag_id} is triggered once per partition, with the conf"

    @field_validator("conf")
    @classmethod
    def _free(cls, conf: dict[str, JsonValue]) -> dict[str, JsonValue]:
        cls.refuse_told(conf)
        try:
            json.dumps(conf, allow_nan=False)
        except ValueError as error:
            raise ValueError("conf is JSON; NaN and infinity are not") from error
        return conf
