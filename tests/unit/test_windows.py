from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.windows import (
    Grain,
    Partition,
    Window,
    describe,
    merge,
    parse_end,
    parse_key,
    parse_start,
    partition_at,
    split,
)

DAY = Grain.DAY
DAYS = st.dates(date(1900, 1, 1), date(2200, 1, 1))
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Europe/Berlin", "Pacific/Auckland"])


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@settings(deadline=None)
@given(DAYS, st.integers(0, 400), ZONES)
def test_partitions_tile_the_range_without_gap_or_overlap(first: date, more: int, zone: str) -> None:
    start = parse_start(first.isoformat(), DAY, zone)
    end = parse_end((first + timedelta(days=more)).isoformat(), DAY, zone)
    partitions = split(start, end, DAY, zone)
    assert len(partitions) == more + 1
    assert partitions[0].window.start == start
    assert partitions[-1].window.end == end
    for earlier, later in pairwise(partitions):
        assert earlier.window.end == later.window.start
    assert len({partition.key for partition in partitions}) == len(partitions)


@given(MOMENTS, ZONES)
def test_every_moment_lies_in_exactly_its_partition(moment: datetime, zone: str) -> None:
    partition = partition_at(moment, DAY, zone)
    assert partition.window.start <= moment < partition.window.end
    assert partition_at(partition.window.end - timedelta(microseconds=1), DAY, zone) == partition
    assert partition_at(partition.window.end, DAY, zone) != partition


@given(DAYS)
def test_a_key_names_its_partition(day: date) -> None:
    partition = partition_at(day, DAY)
    assert parse_key(partition.key, DAY) == partition
    assert partition.key == day.isoformat()


@pytest.mark.parametrize(
    ("day", "hours", "start"),
    [
        ("2024-03-10", 23, "2024-03-10T05:00"),
        ("2024-11-03", 25, "2024-11-03T04:00"),
        ("2024-06-01", 24, "2024-06-01T04:00"),
    ],
)
def test_a_day_on_which_clocks_change_is_one_partition(day: str, hours: int, start: str) -> None:
    window = parse_key(day, DAY, "America/New_York").window
    assert window.start == at(start)
    assert window.end - window.start == timedelta(hours=hours)


def test_an_end_given_as_a_date_is_inclusive() -> None:
    partitions = split(parse_start("2024-05-11", DAY), parse_end("2024-05-13", DAY), DAY)
    assert [partition.key for partition in partitions] == ["2024-05-11", "2024-05-12", "2024-05-13"]


def test_an_end_given_as_a_datetime_is_exclusive() -> None:
    partitions = split(parse_start("2024-05-11T00:00:00Z", DAY), parse_end("2024-05-13T00:00:00Z", DAY), DAY)
    assert [partition.key for partition in partitions] == ["2024-05-11", "2024-05-12"]


def test_one_date_as_both_bounds_is_one_partition() -> None:
    assert len(split(parse_start("2024-05-11", DAY), parse_end("2024-05-11", DAY), DAY)) == 1


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2024-05-11T00:00:00Z", "2024-05-11T00:00:00Z"),
        ("2024-05-12", "2024-05-10"),
        ("2024-05-12", "2024-05-12T00:00"),
    ],
)
def test_an_empty_range_is_refused(start: str, end: str) -> None:
    with pytest.raises(RequestError, match="range is empty"):
        split(parse_start(start, DAY), parse_end(end, DAY), DAY)


@pytest.mark.parametrize("bound", ["2024-05-11T00:00:00.000001Z", "2024-05-11T12:00", "2024-05-11T00:00:00+02:00"])
def test_a_bound_inside_a_partition_is_refused_at_either_end(bound: str) -> None:
    with pytest.raises(RequestError, match="boundary"):
        split(parse_start(bound, DAY), at("2024-06-01"), DAY)
    with pytest.raises(RequestError, match="boundary"):
        split(at("2024-05-01"), parse_end(bound, DAY), DAY)


def test_the_last_microsecond_of_a_day_belongs_to_it_and_midnight_to_the_next() -> None:
    assert partition_at(at("2024-05-11T23:59:59.999999"), DAY).key == "2024-05-11"
    assert partition_at(at("2024-05-12T00:00:00"), DAY).key == "2024-05-12"


def test_a_datetime_without_a_zone_is_in_the_zone_of_the_target() -> None:
    assert parse_start("2026-01-07T00:00", DAY, "Asia/Tokyo") == at("2026-01-06T15:00")
    assert parse_start("2026-01-07T00:00", DAY) == at("2026-01-07T00:00")


def test_bounds_are_plain_datetimes_in_utc() -> None:
    for text in ("2024-05-11", "2024-05-11T01:02:03.000004+02:00"):
        assert type(parse_start(text, DAY)) is datetime
        assert parse_start(text, DAY).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20240511",
        "2024-W19-6",
        "2024-132",
        "2024-05",
        "2024-5-1",
        "2024-05-32",
        "0000-01-01",
        "9999-12-31",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
        "2024-05-11T25:00",
        "2024-05-11\n",
        " 2024-05-11",
        "٢٠٢٤-٠٥-١١",
        "2024-05-11' OR '1'='1",
        "2024-05-11; DROP TABLE analytics.fct_orders",
        "2024-05-11T00:00:00Z'--",
        "yesterday",
        "{{ ds }}",
        "2024-05-11\x00",
    ],
)
def test_a_bound_that_is_not_a_date_is_refused_and_shown(text: str) -> None:
    for parse in (parse_start, parse_end):
        with pytest.raises(RequestError) as caught:
            parse(text, DAY)
        assert repr(text)[1:-1] in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "2024-05-11T00:00:00", "2024-05-32", "2024-05-11'--", "'; DROP TABLE x; --", "2024-05-11\n", "9999-12-31"],
)
def test_a_key_that_no_partition_has_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_key(text, DAY)


@given(st.text(max_size=30))
def test_no_text_gets_through_but_a_date_or_a_datetime(text: str) -> None:
    try:
        moment = parse_start(text, DAY)
    except RequestError:
        return
    assert datetime.fromisoformat(text).date() - moment.date() <= timedelta(days=1)


def test_a_year_of_three_digits_keeps_a_key_that_reads_back() -> None:
    assert parse_key("0987-01-02", DAY).key == "0987-01-02"


@settings(deadline=None)
@given(st.sets(st.integers(0, 60), min_size=1))
def test_merged_windows_cover_exactly_the_partitions(days: set[int]) -> None:
    partitions = [partition_at(date(2024, 1, 1) + timedelta(days=day), DAY) for day in days]
    windows = merge(partitions)
    rebuilt = [partition for window in windows for partition in split(window.start, window.end, DAY)]
    assert rebuilt == sorted(partitions)
    for earlier, later in pairwise(windows):
        assert earlier.end < later.start


def test_partitions_that_overlap_are_not_merged() -> None:
    whole = Window(at("2024-01-01"), at("2024-01-03"))
    with pytest.raises(ValueError, match="overlap"):
        merge([Partition("a", whole), partition_at(date(2024, 1, 2), DAY)])


def test_no_partitions_merge_to_no_window() -> None:
    assert merge([]) == ()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (datetime(2024, 1, 1), datetime(2024, 1, 2)),  # noqa: DTZ001
        (at("2024-01-02"), at("2024-01-01")),
        (at("2024-01-01"), at("2024-01-01")),
        (datetime.fromisoformat("2024-01-01T00:00:00+01:00"), at("2024-01-02")),
    ],
)
def test_a_window_is_bounded_by_utc_instants_in_order(start: datetime, end: datetime) -> None:
    with pytest.raises(ValueError, match="window"):
        Window(start, end)


def test_windows_that_touch_do_not_overlap() -> None:
    first, second = (partition_at(date(2024, 1, day), DAY).window for day in (1, 2))
    assert not first.overlaps(second)
    assert not second.overlaps(first)
    assert first.overlaps(Window(first.end - timedelta(microseconds=1), second.end))


def test_a_label_names_the_first_and_the_last_key() -> None:
    partitions = split(at("2013-02-01"), at("2013-02-13"), DAY)
    assert describe(partitions) == "2013-02-01 … 2013-02-12"
    assert describe(partitions[:1]) == "2013-02-01"
