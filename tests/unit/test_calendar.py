"""Hours to years of any zone's calendar: how they tile time, what their keys are, and the words that bound a range."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pendulum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.windows import (
    Grain,
    Partition,
    Value,
    Window,
    covered,
    describe,
    list_partition,
    merge,
    parse_end,
    parse_key,
    parse_start,
    partition_at,
    require_zone,
    side_by_side,
    split,
    widen,
)
from airflow_backfill_provider.windows.zones import known_zones

ZONES = st.sampled_from(sorted(known_zones()))
TIMES = [grain for grain in Grain if grain is not Grain.LIST]
GRAINS = st.sampled_from(TIMES)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
LENGTHS = {Grain.HOUR: 40, Grain.DAY: 400, Grain.WEEK: 60, Grain.MONTH: 30, Grain.YEAR: 12}
NEW_YORK = "America/New_York"
NOW = datetime(2024, 3, 15, 13, 30, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[Partition, ...], Grain, str]:
    """Neighbouring partitions, found one after the other."""
    grain, zone = draw(GRAINS), draw(ZONES)
    partitions = [partition_at(draw(MOMENTS), grain, zone)]
    for _ in range(draw(st.integers(0, LENGTHS[grain]))):
        partitions.append(partition_at(partitions[-1].window.end, grain, zone))
    return tuple(partitions), grain, zone


@settings(deadline=None, max_examples=150)
@given(ranges())
def test_partitions_tile_any_range_of_any_zone_and_grain_exactly(
    given_range: tuple[tuple[Partition, ...], Grain, str],
) -> None:
    partitions, grain, zone = given_range
    start, end = partitions[0].window.start, partitions[-1].window.end
    assert split(start, end, grain, zone) == partitions
    assert merge(partitions) == (Window(start, end),)
    assert all(earlier.window.end == later.window.start for earlier, later in pairwise(partitions))
    assert sum((one.window.end - one.window.start for one in partitions), timedelta()) == end - start
    assert len({one.key for one in partitions}) == len(partitions)
    assert [parse_key(one.key, grain, zone) for one in partitions] == list(partitions)
    assert list(partitions) == sorted(partitions)


@settings(deadline=None, max_examples=200)
@given(MOMENTS, GRAINS, ZONES)
def test_every_moment_of_any_zone_lies_in_exactly_its_partition(moment: datetime, grain: Grain, zone: str) -> None:
    partition = partition_at(moment, grain, zone)
    tick = timedelta(microseconds=1)
    assert partition.window.start <= moment < partition.window.end
    assert partition_at(partition.window.start, grain, zone) == partition
    assert partition_at(partition.window.end - tick, grain, zone) == partition
    assert partition_at(partition.window.end, grain, zone) != partition
    assert partition_at(partition.window.start - tick, grain, zone) != partition


@settings(deadline=None, max_examples=150)
@given(MOMENTS, st.integers(1, 2_000), GRAINS, ZONES)
def test_a_widened_range_holds_the_range_and_no_partition_too_many(
    start: datetime, minutes: int, grain: Grain, zone: str
) -> None:
    end = start + timedelta(minutes=minutes)
    wide_start, wide_end = widen(start, end, grain, zone)
    partitions = split(wide_start, wide_end, grain, zone)
    assert wide_start <= start < end <= wide_end
    assert partitions[0].window.end > start
    assert partitions[-1].window.start < end


@settings(deadline=None)
@given(st.dates(date(1900, 1, 1), date(2036, 1, 1)), ZONES)
def test_a_day_is_the_instants_at_which_the_zone_shows_it(day: date, zone: str) -> None:
    rules = pendulum.timezone(zone)
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=rules).astimezone(UTC)
    assume(noon.astimezone(rules).date() == day)  # not a day that the zone left out
    window = partition_at(noon, Grain.DAY, zone).window
    inside = [window.start + (window.end - window.start) * part / 7 for part in range(1, 7)]
    # Where clocks go back across midnight, a day shows minutes of its neighbour.
    assume(all(moment.astimezone(rules).utcoffset() == window.start.astimezone(rules).utcoffset() for moment in inside))
    assert {moment.astimezone(rules).date() for moment in inside} == {day}


@pytest.mark.parametrize(
    ("day", "zone", "start", "hours"),
    [
        ("2024-03-10", NEW_YORK, "2024-03-10T05:00", 23),
        ("2024-11-03", NEW_YORK, "2024-11-03T04:00", 25),
        ("2024-11-03", "America/Havana", "2024-11-03T04:00", 25),  # midnight is there twice
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00", 23),  # there is no midnight
        ("1919-03-31", "America/Toronto", "1919-03-31T04:30", 23.5),  # the clocks went forward across midnight
        ("2009-10-31", "America/St_Johns", "2009-10-31T02:30", 25),  # the clocks went back across midnight
        ("2009-11-01", "America/St_Johns", "2009-11-01T03:30", 24),
        ("2024-04-07", "Australia/Lord_Howe", "2024-04-06T13:00", 24.5),
        ("2011-12-29", "Pacific/Apia", "2011-12-29T10:00", 24),
        ("2011-12-31", "Pacific/Apia", "2011-12-30T10:00", 24),
        ("2024-01-01", "Asia/Kolkata", "2023-12-31T18:30", 24),
    ],
)
def test_a_day_is_a_calendar_day_whatever_its_length(day: str, zone: str, start: str, hours: float) -> None:
    window = parse_key(day, Grain.DAY, zone).window
    assert window == Window(at(start), at(start) + timedelta(hours=hours))


def test_a_minute_of_a_day_that_the_clocks_took_back_belongs_to_the_day_before() -> None:
    shown_too_early = at("2009-11-01T02:30:30")
    assert partition_at(shown_too_early, Grain.DAY, "America/St_Johns").key == "2009-10-31"
    (hour,) = split(at("2009-11-01T02:30"), at("2009-11-01T02:31"), Grain.HOUR, "America/St_Johns")
    assert hour.key == "2009-11-01T00-0230"


def test_a_day_that_a_zone_left_out_is_no_partition() -> None:
    with pytest.raises(RequestError, match=r"no 2011-12-30 in Pacific/Apia"):
        parse_key("2011-12-30", Grain.DAY, "Pacific/Apia")
    start, end = (parse_start(day, Grain.DAY, "Pacific/Apia") for day in ("2011-12-29", "2012-01-01"))
    assert [one.key for one in split(start, end, Grain.DAY, "Pacific/Apia")] == ["2011-12-29", "2011-12-31"]


@pytest.mark.parametrize(
    ("day", "zone", "count", "some"),
    [
        ("2024-11-03", NEW_YORK, 25, ["2024-11-03T00", "2024-11-03T01-0400", "2024-11-03T01-0500", "2024-11-03T02"]),
        ("2024-03-10", NEW_YORK, 23, ["2024-03-10T00", "2024-03-10T01", "2024-03-10T03"]),
        ("2024-10-27", "Europe/Berlin", 25, ["2024-10-27T02+0200", "2024-10-27T02+0100", "2024-10-27T03"]),
        (
            "2009-10-31",
            "America/St_Johns",  # the clocks went back from 00:01 to 23:01
            26,
            ["2009-10-31T23-0230", "2009-11-01T00-0230", "2009-10-31T23-0330"],
        ),
        ("2024-04-07", "Australia/Lord_Howe", 25, ["2024-04-07T01+1100", "2024-04-07T01+1030", "2024-04-07T02"]),
    ],
)
def test_the_hours_of_a_day_on_which_clocks_change_all_have_keys_of_their_own(
    day: str, zone: str, count: int, some: list[str]
) -> None:
    hours = split(parse_start(day, Grain.HOUR, zone), parse_end(day, Grain.HOUR, zone), Grain.HOUR, zone)
    keys = [hour.key for hour in hours]
    assert len(hours) == count
    assert [key for key in keys if key in some] == some
    assert all(parse_key(hour.key, Grain.HOUR, zone) == hour for hour in hours)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2024-11-03T01", "2024-11-03T01-0400 or 2024-11-03T01-0500"),
        ("2024-11-03T05-0500", "give 2024-11-03T05"),
        ("2024-03-10T02", "clocks went forward"),
        ("2024-03-10T24", "a key looks like"),
        ("2024-03-10", "a key looks like"),
        ("2024-03-10T05:00", "a key looks like"),
    ],
)
def test_an_hour_key_that_is_not_exact_is_refused_naming_those_there_are(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        parse_key(text, Grain.HOUR, NEW_YORK)


@pytest.mark.parametrize(
    ("text", "grain", "key", "first", "after"),
    [
        ("2024-03-11 (W11)", Grain.WEEK, "2024-03-11 (W11)", "2024-03-11", "2024-03-18"),
        ("2024-03-11", Grain.WEEK, "2024-03-11 (W11)", "2024-03-11", "2024-03-18"),
        ("2020-12-28", Grain.WEEK, "2020-12-28 (W53)", "2020-12-28", "2021-01-04"),
        ("2024-02", Grain.MONTH, "2024-02", "2024-02-01", "2024-03-01"),
        ("2024-02-01", Grain.MONTH, "2024-02", "2024-02-01", "2024-03-01"),
        ("2024", Grain.YEAR, "2024", "2024-01-01", "2025-01-01"),
        ("2024-01-01", Grain.YEAR, "2024", "2024-01-01", "2025-01-01"),
    ],
)
def test_a_longer_period_is_named_by_its_key_or_its_first_day(
    text: str, grain: Grain, key: str, first: str, after: str
) -> None:
    for zone in ("UTC", "Asia/Tokyo"):
        partition = parse_key(text, grain, zone)
        assert partition.key == key
        assert partition.window.start == parse_start(first, Grain.DAY, zone)
        assert partition.window.end == parse_start(after, Grain.DAY, zone)


@pytest.mark.parametrize(
    ("text", "grain", "told"),
    [
        ("2024-03-12", Grain.WEEK, r"lies in 2024-03-11 \(W11\)"),
        ("2024-03-11 (W12)", Grain.WEEK, r"lies in 2024-03-11 \(W11\)"),
        ("2024-03-12 (W11)", Grain.WEEK, r"lies in 2024-03-11 \(W11\)"),
        ("2024-02-02", Grain.MONTH, "lies in 2024-02"),
        ("2024-13", Grain.MONTH, "not a date"),
        ("2024-02", Grain.DAY, "a key looks like"),
        ("2024-02", Grain.YEAR, "a key looks like"),
        ("9999", Grain.YEAR, "no end"),
    ],
)
def test_a_key_of_another_grain_or_inside_a_partition_is_refused(text: str, grain: Grain, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        parse_key(text, grain)


@pytest.mark.parametrize(
    ("start", "end", "grain", "keys"),
    [
        ("2024-02", "2024-04", Grain.MONTH, ["2024-02", "2024-03", "2024-04"]),
        ("2024-02-01", "2024-02-29", Grain.MONTH, ["2024-02"]),
        ("2023", "2024", Grain.YEAR, ["2023", "2024"]),
        ("2024-03-11", "2024-03-24", Grain.WEEK, ["2024-03-11 (W11)", "2024-03-18 (W12)"]),
        ("2024-03-11 (W11)", "2024-03-18 (W12)", Grain.WEEK, ["2024-03-11 (W11)", "2024-03-18 (W12)"]),
        ("2024-03-11T22:00", "2024-03-12T01:00", Grain.HOUR, ["2024-03-11T22", "2024-03-11T23", "2024-03-12T00"]),
    ],
)
def test_a_period_as_end_is_inclusive_and_a_datetime_exclusive(
    start: str, end: str, grain: Grain, keys: list[str]
) -> None:
    for zone in ("UTC", "Asia/Tokyo", NEW_YORK):
        bounds = parse_start(start, grain, zone), parse_end(end, grain, zone)
        assert [one.key for one in split(*bounds, grain, zone)] == keys


def test_a_range_that_cuts_a_partition_is_refused_and_says_what_it_cuts() -> None:
    with pytest.raises(RequestError, match=r"2024-02.*\[2024-02-01T00:00:00Z, 2024-03-01T00:00:00Z\).*expand"):
        split(parse_start("2024-02-15", Grain.MONTH), parse_end("2024-02-20", Grain.MONTH), Grain.MONTH)


def test_a_local_date_is_resolved_in_the_zone() -> None:
    assert parse_start("2026-01-07", Grain.DAY, "Asia/Tokyo") == at("2026-01-06T15:00")
    assert parse_end("2026-01-16", Grain.DAY, "Asia/Tokyo") == at("2026-01-16T15:00")


@pytest.mark.parametrize(
    ("text", "zone", "start", "end"),
    [
        ("today", "UTC", "2024-03-15T00:00", "2024-03-16T00:00"),
        ("today", "Asia/Tokyo", "2024-03-14T15:00", "2024-03-15T15:00"),
        ("today", "Pacific/Kiritimati", "2024-03-15T10:00", "2024-03-16T10:00"),
        ("yesterday", NEW_YORK, "2024-03-14T04:00", "2024-03-15T04:00"),
        ("-5d", NEW_YORK, "2024-03-10T05:00", "2024-03-11T04:00"),
        ("-0d", "UTC", "2024-03-15T00:00", "2024-03-16T00:00"),
        ("-12h", "UTC", "2024-03-15T01:00", "2024-03-15T02:00"),
        ("-1w", "UTC", "2024-03-04T00:00", "2024-03-11T00:00"),
        ("-3mo", "UTC", "2023-12-01T00:00", "2024-01-01T00:00"),
        ("-1y", "UTC", "2023-01-01T00:00", "2024-01-01T00:00"),
        ("now", "UTC", "2024-03-15T13:00", "2024-03-15T14:00"),
    ],
)
def test_a_relative_text_names_a_period_of_the_zones_calendar(text: str, zone: str, start: str, end: str) -> None:
    assert parse_start(text, Grain.HOUR, zone, NOW) == at(start)
    assert parse_end(text, Grain.HOUR, zone, NOW) == at(end)


@pytest.mark.parametrize(
    "text", ["-99999y", "-99999999d", "-d", "-3m", "- 3d", "--3d", "-3D", "Today", "tomorrow", "NOW", "now()", "-3d\n"]
)
def test_what_is_no_distance_is_refused_and_shown(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_start(text, Grain.DAY, "UTC", NOW)
    assert repr(text)[1:-1] in str(caught.value)


def test_a_month_or_year_is_a_bound_only_where_it_is_the_grain() -> None:
    for text, grain in (("2024-02", Grain.DAY), ("2024-02", Grain.YEAR), ("2024", Grain.MONTH), ("2024", Grain.DAY)):
        with pytest.raises(RequestError, match="where that is the grain"):
            parse_end(text, grain)


def test_a_local_time_that_is_there_twice_or_never_is_refused_with_the_way_out() -> None:
    with pytest.raises(RequestError, match=r"twice.*2024-11-03T01:00:00-04:00 or 2024-11-03T01:00:00-05:00"):
        parse_start("2024-11-03T01:00", Grain.HOUR, NEW_YORK)
    with pytest.raises(RequestError, match="go forward over"):
        parse_start("2024-03-10T02:00", Grain.HOUR, NEW_YORK)
    assert parse_start("2024-11-03T01:00-05:00", Grain.HOUR, NEW_YORK) == at("2024-11-03T06:00")


@pytest.mark.parametrize(
    ("text", "grain", "keys"),
    [
        ("2024-03-11T05", Grain.HOUR, ["2024-03-11T05"]),
        ("2024-03-11", Grain.HOUR, [f"2024-03-11T{hour:02d}" for hour in range(24)]),
        ("2024-03", Grain.DAY, ["2024-03-11", "2024-03-12"]),
        ("2024", Grain.DAY, ["2024-03-11", "2024-03-12"]),
        ("2024-03-12", Grain.DAY, ["2024-03-12"]),
        ("2024-03-13", Grain.DAY, []),
    ],
)
def test_a_text_covers_a_key_or_all_that_lies_in_a_longer_period(text: str, grain: Grain, keys: list[str]) -> None:
    partitions = split(at("2024-03-11"), at("2024-03-13"), grain)
    assert [one.key for one in covered(text, partitions, grain)] == keys


def test_a_day_covers_no_month_that_holds_it() -> None:
    months = split(at("2024-02-01"), at("2024-04-01"), Grain.MONTH)
    assert covered("2024-02-15", months, Grain.MONTH) == []
    assert [one.key for one in covered("2024", months, Grain.MONTH)] == ["2024-02", "2024-03"]


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("America/NewYork", "America/New_York"),
        ("new york", "America/New_York"),
        ("europe/berlin", "Europe/Berlin"),
        ("Asia/Tokio", "Asia/Tokyo"),
        ("utc", "UTC"),
    ],
)
def test_a_zone_that_does_not_exist_is_refused_with_one_that_does(name: str, suggested: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{suggested}'"):
        require_zone(name)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "+05:00", "localtime", "zzzzzz"])
def test_what_names_no_zone_at_all_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no IANA time zone"):
        require_zone(name)


@pytest.mark.parametrize("text", ["eu", "42", "-7", "eu-west 1", "Ünïcode", "日本", "a.b:c/d@e+f", "x" * 64])
def test_a_value_of_a_list_is_a_partition_with_itself_as_key(text: str) -> None:
    assert parse_key(text, Grain.LIST) == Partition(text, Value(text)) == list_partition(text)
    assert list_partition(text).is_over(NOW)


@pytest.mark.parametrize(
    "text", ["", " eu", "eu ", "a'b", 'a"b', "a;b", "a\\b", "a\nb", "eu\n", "{{x}}", "a(b)", "a*b", "a\x00", "x" * 65]
)
def test_a_value_that_could_end_its_quotes_is_no_partition(text: str) -> None:
    with pytest.raises(RequestError, match="cannot be a list partition"):
        list_partition(text)


def test_values_merge_to_themselves_and_never_twice() -> None:
    eu, us = list_partition("eu"), list_partition("us")
    assert merge([us, eu]) == (Value("eu"), Value("us"))
    assert describe([eu, us]) == "eu … us"
    with pytest.raises(ValueError, match="Two partitions"):
        merge([eu, eu])
    with pytest.raises(ValueError, match="no order"):
        merge([eu, partition_at(NOW, Grain.DAY)])


def test_only_windows_that_touch_lie_side_by_side() -> None:
    days = split(at("2024-11-02"), at("2024-11-06"), Grain.DAY)
    assert side_by_side([days[3], days[0], days[1]]) == (days[:2], days[3:])
    eu, us = list_partition("eu"), list_partition("us")
    assert side_by_side([us, eu]) == ((eu,), (us,))


def test_a_value_has_no_window() -> None:
    with pytest.raises(ValueError, match="no window of time"):
        _ = list_partition("eu").window
    with pytest.raises(ValueError, match="no partition at a moment"):
        partition_at(NOW, Grain.LIST)


@settings(deadline=None)
@given(
    st.one_of(
        st.text(max_size=80), st.sampled_from(["2024-03-11 (W11)", "2024-11-03T01+0100", "日本", "--", "eu/west"])
    )
)
def test_a_label_is_fit_for_a_file_name(key: str) -> None:
    label = Partition(key, Value("x")).label
    assert 0 < len(label) <= 40
    assert label[0].isalnum()
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in label)


def test_a_key_that_is_fit_for_a_file_name_is_its_own_label() -> None:
    assert partition_at(NOW, Grain.DAY).label == "2024-03-15"
    assert partition_at(NOW, Grain.WEEK).label == "2024-03-11-W11"
