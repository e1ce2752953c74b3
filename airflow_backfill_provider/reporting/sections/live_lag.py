"""How far the live pipeline was behind before, while and after the backfill worked."""

from __future__ import annotations

from decimal import Decimal

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.steps.live_lag import live_lags


def live_lag(facts: Facts) -> Section | None:
    """Each condition that the spec calls a live lag; None when it calls none so."""
    found = live_lags(facts.events, facts.plan.spec.throttle)
    if not found:
        return None
    lags = [
        {
            "lag": lag,
            **{name: _exact(getattr(lag, name)) for name in ("limit", "before", "highest", "after")},
        }
        for lag in found
    ]
    return Section("live_lag", "Live lag", {"lags": lags})


def _exact(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))
