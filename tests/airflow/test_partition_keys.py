"""Keys are the text that Airflow's own partition mappers write for the same period."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from airflow.partition_mappers import temporal
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.windows import Grain, partition_at
from airflow_backfill_provider.windows.zones import local

MAPPERS = {
    Grain.HOUR: temporal.StartOfHourMapper,
    Grain.DAY: temporal.StartOfDayMapper,
    Grain.WEEK: temporal.StartOfWeekMapper,
    Grain.MONTH: temporal.StartOfMonthMapper,
    Grain.YEAR: temporal.StartOfYearMapper,
}
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "Pacific/Auckland", "Australia/Lord_Howe"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("grain", MAPPERS)
@settings(deadline=None, max_examples=50)
@given(moment=MOMENTS)
def test_a_key_is_what_airflow_writes_for_the_moment_as_the_zone_shows_it(
    grain: Grain, zone: str, moment: datetime
) -> None:
    shown = local(moment, zone).strftime("%Y-%m-%dT%H:%M:%S")
    own = partition_at(moment, grain, zone).key
    theirs = MAPPERS[grain](timezone=zone).to_downstream(shown)
    # An hour that the clock shows twice has its offset after Airflow's text, which names both alike.
    assert own == theirs or (grain is Grain.HOUR and own[: len(theirs)] == theirs and own[len(theirs)] in "+-")


@pytest.mark.parametrize(("hour", "suffix"), [(5, "-0400"), (6, "-0500"), (7, "")])
def test_only_an_hour_that_is_there_twice_has_an_offset(hour: int, suffix: str) -> None:
    key = partition_at(datetime(2024, 11, 3, hour, 30, tzinfo=UTC), Grain.HOUR, "America/New_York").key
    theirs = temporal.StartOfHourMapper(timezone="America/New_York").to_downstream(
        f"2024-11-03T{'01' if suffix else '02'}:30:00"
    )
    assert key == theirs + suffix
