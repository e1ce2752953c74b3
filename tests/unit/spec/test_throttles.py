"""Conditions to wait for, as they are written; and when quiet hours end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.throttle import Throttle

MEASURED: dict[str, Any] = {"name": "lag", "sql": "SELECT 1", "conn_id": "live", "max": 900}
QUIET: dict[str, Any] = {"name": "office", "quiet_hours": "08:00-18:00", "timezone": "Europe/Zurich"}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"name": "lag", "max": 1}, "give one of sql, callable and quiet_hours"),
        (MEASURED | {"quiet_hours": "08:00-18:00"}, "give one of sql, callable and quiet_hours"),
        ({**MEASURED, "max": None}, "need max"),
        (QUIET | {"max": 3}, "quiet_hours has none"),
        ({**MEASURED, "conn_id": None}, "sql needs conn_id"),
        (MEASURED | {"every": "1s"}, "at least 10s"),
        ({"name": "lag", "callable": "os.system", "max": 1}, "package.module:function"),
        (QUIET | {"quiet_hours": "8-18"}, "write '08:00-18:00'"),
        (QUIET | {"quiet_hours": "08:00-08:00"}, "not hours of a day"),
        (QUIET | {"quiet_hours": "25:00-26:00"}, "not hours of a day"),
        (QUIET | {"quiet_hours": "00:00-24:00"}, "never end"),
        (QUIET | {"days": []}, "at least 1"),
        (QUIET | {"timezone": "Zurich"}, "did you mean 'Europe/Zurich'"),
    ],
)
def test_what_cannot_be_meant_is_refused(written: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Throttle.model_validate(written)


@pytest.mark.parametrize(
    ("changes", "now", "until"),
    [
        ({}, "2024-07-01T06:00", "2024-07-01T16:00"),  # 08:00 in summer
        ({}, "2024-07-01T05:59", None),
        ({}, "2024-07-01T16:00", None),
        ({}, "2024-01-01T07:00", "2024-01-01T17:00"),  # 08:00 in winter
        ({"days": ["mon", "tue"]}, "2024-07-03T08:00", None),  # a Wednesday
        ({"quiet_hours": "22:00-06:00"}, "2024-07-01T21:00", "2024-07-02T04:00"),
        ({"quiet_hours": "22:00-06:00"}, "2024-07-02T03:00", "2024-07-02T04:00"),
        ({"quiet_hours": "22:00-06:00", "days": ["mon"]}, "2024-07-03T03:00", None),
        ({"quiet_hours": "00:00-24:00", "days": ["sun"]}, "2024-07-07T12:00", "2024-07-07T22:00"),
        ({"quiet_hours": "01:00-02:30"}, "2024-10-27T01:15", "2024-10-27T01:30"),  # the second 02:15 of that night
    ],
)
def test_quiet_hours_are_those_of_the_zones_clock(changes: dict[str, Any], now: str, until: str | None) -> None:
    found = Throttle.model_validate(QUIET | changes).quiet_until(datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert found == (None if until is None else datetime.fromisoformat(until).replace(tzinfo=UTC))


def test_a_measured_condition_has_no_quiet_hours() -> None:
    assert Throttle.model_validate(MEASURED).quiet_until(datetime.now(UTC)) is None


def test_two_of_one_name_are_refused() -> None:
    spec = {
        "name": "orders",
        "target": {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]},
        "transform": {"sql": "SELECT 1"},
        "compute": {"conn_id": "warehouse"},
    }
    assert BackfillSpec.model_validate(spec | {"throttle": [MEASURED, QUIET]}).throttle[1].name == "office"
    with pytest.raises(ValidationError, match="two throttles are called 'lag'"):
        BackfillSpec.model_validate(spec | {"throttle": [MEASURED, MEASURED]})
