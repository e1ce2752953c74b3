from __future__ import annotations

from typing import Any

import pytest

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.request import Mode, Request

RANGE = {"start_date": "2013-02-01", "end_date": "2013-06-30"}
HOSTILE = "2013-02-01'; DROP TABLE analytics.fct_orders; --"


def test_a_range_and_nothing_else_publishes() -> None:
    request = Request.from_conf(RANGE)
    assert (request.mode, request.include_live, request.restage) == (Mode.PUBLISH, False, False)


def test_a_start_alone_is_a_range_with_an_open_end() -> None:
    request = Request.from_conf({"start_date": "2013-02-01"})
    assert (request.end_date, request.is_relative, request.expand) == (None, True, False)


@pytest.mark.parametrize(
    ("start", "end", "relative"),
    [
        ("2013-02-01", "2013-06-30", False),
        ("2013-02", "2013-06", False),
        ("2013-02-01", "yesterday", True),
        ("-30d", "2013-06-30", True),
        ("-30d", "now", True),
    ],
)
def test_a_range_is_relative_when_one_of_its_ends_depends_on_the_moment(start: str, end: str, relative: bool) -> None:
    assert Request.from_conf({"start_date": start, "end_date": end}).is_relative is relative


def test_form_fields_left_empty_count_as_absent() -> None:
    assert Request.from_conf({**RANGE, "partitions": [], "exclude": None, "reason": ""}) == Request.from_conf(RANGE)


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({}, "give start_date and end_date, or partitions"),
        ({"end_date": "2013-02-01"}, "give start_date and end_date, or partitions"),
        ({**RANGE, "partitions": ["2013-02-01"]}, "either start_date and end_date, or partitions"),
        ({**RANGE, "backfill_id": "0123456789ab"}, "brings its own range"),
        ({"backfill_id": "../../../etc"}, "backfill_id"),
        ({"backfill_id": "0123456789ab\n"}, "backfill_id"),
        ({"backfill_id": "0123456789AB"}, "backfill_id"),
        ({**RANGE, "mode": "publish; DROP TABLE x"}, "mode"),
        ({**RANGE, "start_dat": "2013-02-01"}, "start_dat"),
        ({**RANGE, "start_date": ["2013-02-01"]}, "start_date"),
        ({**RANGE, "start_date": 20130201}, "start_date"),
        ({**RANGE, "start_date": "x" * 65}, "start_date"),
        ({**RANGE, "exclude": ["x" * 65]}, "exclude"),
        ({**RANGE, "exclude": {"a": 1}}, "exclude"),
        ({**RANGE, "reason": "x" * 2_001}, "reason"),
        ({**RANGE, "restage": "maybe"}, "restage"),
        ({"partitions": "2013-02-01"}, "partitions"),
        ({"partitions": [1]}, "partitions"),
        ([], "a mapping"),
        ("start_date", "a mapping"),
        (None, "give start_date and end_date"),
    ],
)
def test_a_conf_that_cannot_be_planned_is_refused_by_field(conf: Any, told: str) -> None:
    with pytest.raises(RequestError, match="The conf cannot be planned") as caught:
        Request.from_conf(conf)
    assert told in str(caught.value)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        Request.from_conf({**RANGE, "mode": "x", "restage": "maybe", "unknown": 1})
    assert all(field in str(caught.value) for field in ("mode", "restage", "unknown"))


def test_sql_in_a_text_field_stays_text() -> None:
    request = Request.from_conf({"start_date": HOSTILE, "end_date": HOSTILE, "exclude": [HOSTILE], "reason": HOSTILE})
    assert (request.start_date, request.exclude, request.reason) == (HOSTILE, (HOSTILE,), HOSTILE)
