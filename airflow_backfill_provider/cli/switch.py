"""The kill switch as commands heed it that do the work of a task."""

from __future__ import annotations

from airflow.models import Variable

from airflow_backfill_provider.errors import Stopped
from airflow_backfill_provider.switch import VARIABLE, decide


def heed_switch(name: str) -> None:
    """:raises Stopped: the kill switch stops that backfill, or cannot be read."""
    verdict = decide(Variable.get(VARIABLE, default_var=None), name)
    if not verdict.go:
        raise Stopped(f"Stopped: {verdict.reason}")
