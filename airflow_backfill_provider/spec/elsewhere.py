"""What every run elsewhere has that recomputes a partition: how long it is waited for, and what it is told."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from airflow_backfill_provider.spec.checks import Frozen
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


class ElsewhereSpec(Frozen):
    """How a run elsewhere is waited for."""

    poll_every: Duration = timedelta(seconds=10)
    """How often to look whether a run is over."""
    timeout: Duration = timedelta(hours=6)
    """How long a run may take, from the moment that it was asked for; it is ended then, and its partition fails."""

    @property
    @abstractmethod
    def extras(self) -> Mapping[str, Any]:
        """What each run is told beside its partition."""

    @property
    @abstractmethod
    def call(self) -> str:
        """What is done for each partition, up to what it is told: a sentence without its end."""

    @property
    def dialect(self) -> str:
        """The SQL dialect of the one engine that such a run can put rows into; empty where any with a place for them will do."""
        return ""

    @staticmethod
    def refuse_told(names: Iterable[str]) -> None:
        """:raises ValueError: one of these is a name by which a run is told of its partition."""
        if taken := sorted(set(names) & set(TOLD)):
            raise ValueError(f"{', '.join(taken)} is what the backfill itself tells the run; take another name")
