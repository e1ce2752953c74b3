"""What a request comes to at one moment: ends, exclusions, widening, and the partition that is not over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.resolution import Resolution, resolve
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.windows import Window, parse_end, parse_start

NOW = datetime(2024, 3, 15, 13, 30, tzinfo=UTC)


def resolved(grain: str = "day", zone: str = "UTC", now: datetime = NOW, **conf: Any) -> Resolution:
    spec = BackfillSpec.model_validate(
        {
            "name": "a",
            "target": {"table": "s.a", "partition_by": "d", "key": ["id"], "grain": grain}
            | ({"timezone": zone} if grain != "list" else {}),
            "transform": {"sql": "SELECT 1"},
            "compute": {"conn_id": "c"},
        }
    )
    return resolve(spec, Request.from_conf(conf), now)


def keys(**asked: Any) -> list[str]:
    return [partition.key for partition in resolved(**asked).partitions]


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        ({"start_date": "2024-03-13"}, ["2024-03-13", "2024-03-14"]),
        ({"start_date": "-2d", "end_date": "yesterday"}, ["2024-03-13", "2024-03-14"]),
        ({"start_date": "yesterday", "end_date": "now", "include_live": True}, ["2024-03-14", "2024-03-15"]),
        ({"start_date": "2024-03-14", "include_live": True}, ["2024-03-14", "2024-03-15"]),
        ({"grain": "month", "start_date": "-2mo"}, ["2024-01", "2024-02"]),
        ({"grain": "month", "start_date": "2024-01", "end_date": "-1mo"}, ["2024-01", "2024-02"]),
        ({"grain": "week", "start_date": "-2w"}, ["2024-02-26 (W09)", "2024-03-04 (W10)"]),
        ({"grain": "year", "start_date": "2022"}, ["2022", "2023"]),
        ({"grain": "hour", "start_date": "-2h"}, ["2024-03-15T11", "2024-03-15T12"]),
        (
            {"grain": "hour", "start_date": "today", "zone": "Pacific/Kiritimati"},
            [f"2024-03-16T0{h}" for h in range(3)],
        ),
    ],
)
def test_relative_and_open_ends_are_resolved_in_the_zone_up_to_what_is_over(
    asked: dict[str, Any], planned: list[str]
) -> None:
    assert keys(**asked) == planned
    assert len(resolved(**asked).notes) == 1


def test_an_open_end_with_nothing_over_is_refused_with_the_way_out() -> None:
    with pytest.raises(RequestError, match=r"No day from today on is over.*include_live"):
        resolved(start_date="today")


def test_the_live_partition_is_the_one_of_the_zone() -> None:
    late = datetime(2024, 3, 15, 3, tzinfo=UTC)  # still the 14th in New York
    asked = {"start_date": "2024-03-13", "end_date": "2024-03-14", "now": late}
    assert keys(**asked) == ["2024-03-13", "2024-03-14"]
    there = resolved(**asked, zone="America/New_York")
    assert [partition.key for partition in there.partitions] == ["2024-03-13"]
    assert [skip.key for skip in there.skipped] == ["2024-03-14"]
    assert keys(**asked, zone="America/New_York", include_live=True) == ["2024-03-13", "2024-03-14"]


def test_a_range_that_cuts_partitions_is_refused_or_widened_and_said_so() -> None:
    asked = {"grain": "month", "start_date": "2024-02-15", "end_date": "2024-02-20"}
    with pytest.raises(RequestError, match="expand: true"):
        resolved(**asked)
    wide = resolved(**asked, expand=True)
    assert [partition.key for partition in wide.partitions] == ["2024-02"]
    assert wide.notes == (
        "The range was expanded to whole months: from [2024-02-15T00:00:00Z, 2024-02-21T00:00:00Z) to "
        "[2024-02-01T00:00:00Z, 2024-03-01T00:00:00Z).",
    )
    assert wide.span == Window(datetime(2024, 2, 1, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("asked", "planned"),
    [
        ({"start_date": "2024-03-01T05:00:00Z", "end_date": "2024-03-02T01:00:00Z"}, ["2024-03-01", "2024-03-02"]),
        ({"grain": "week", "start_date": "2024-03-06", "end_date": "2024-03-07"}, ["2024-03-04 (W10)"]),
        ({"grain": "year", "start_date": "2022-05-01", "end_date": "2023-01-01"}, ["2022", "2023"]),
        ({"grain": "hour", "start_date": "2024-03-01T05:10", "end_date": "2024-03-01T05:20"}, ["2024-03-01T05"]),
    ],
)
def test_each_end_is_widened_outwards(asked: dict[str, Any], planned: list[str]) -> None:
    assert keys(**asked, expand=True) == planned


def test_an_aligned_range_is_not_called_expanded() -> None:
    assert resolved(start_date="2024-03-01", end_date="2024-03-02", expand=True).notes == ()


@pytest.mark.parametrize("expand", [True, False])
def test_an_end_before_the_start_stays_an_error(expand: bool) -> None:
    with pytest.raises(RequestError, match="empty"):
        resolved(grain="month", start_date="2024-02-20", end_date="2024-02-15", expand=expand)


@pytest.mark.parametrize(
    ("grain", "exclude", "left"),
    [
        ("day", ["2024-02-28"], ["2024-02-27", "2024-02-29", "2024-03-01"]),
        ("day", ["2024-02"], ["2024-03-01"]),
        (
            "hour",
            ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01T00"],
            [f"2024-03-01T{h:02d}" for h in range(1, 24)],
        ),
    ],
)
def test_exclude_names_keys_or_longer_periods(grain: str, exclude: list[str], left: list[str]) -> None:
    assert keys(grain=grain, start_date="2024-02-27", end_date="2024-03-01", exclude=exclude) == left


@pytest.mark.parametrize(
    ("grain", "exclude", "told"),
    [
        ("month", "2024-02-15", "exclude names 2024-02-15, which the range does not hold"),
        ("day", "2023-02-15", "does not hold"),
        ("day", "yesterday", "a key looks like"),
        ("day", "2024-02-27'; --", "a key looks like"),
    ],
)
def test_an_exclusion_that_leaves_nothing_out_is_refused(grain: str, exclude: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        resolved(grain=grain, start_date="2024-02-01", end_date="2024-02-29", exclude=[exclude])


def test_a_list_of_keys_is_sorted_by_time_and_named_once() -> None:
    asked = ["2023-10-29T02+0100", "2023-10-29T02+0200", "2023-10-29T01", "2023-10-29T01"]
    found = resolved(grain="hour", zone="Europe/Berlin", partitions=asked)
    assert [one.key for one in found.partitions] == ["2023-10-29T01", "2023-10-29T02+0200", "2023-10-29T02+0100"]
    assert found.span is None


def test_values_of_a_list_are_never_live() -> None:
    assert keys(grain="list", partitions=["us", "eu"], now=datetime(1900, 1, 1, tzinfo=UTC)) == ["eu", "us"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_resolved_range_is_what_the_texts_mean_in_the_zone(zone: str) -> None:
    from airflow_backfill_provider.windows import Grain

    span = resolved(zone=zone, start_date="2024-03-09", end_date="2024-03-11").span
    assert span == Window(parse_start("2024-03-09", Grain.DAY, zone), parse_end("2024-03-11", Grain.DAY, zone))
