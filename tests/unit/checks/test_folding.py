from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_backfill_provider.checks.fold import fold, folds, from_recorded, to_recorded
from airflow_backfill_provider.spec.metric import ROWS, Metric, MetricKind, Scalar

SUM, LOW, HIGH = (Metric(kind, ("net",)) for kind in (MetricKind.SUM, MetricKind.MIN, MetricKind.MAX))
numbers = st.one_of(
    st.none(), st.integers(-(10**30), 10**30), st.decimals(allow_nan=False, allow_infinity=False, places=4)
)


@given(st.lists(numbers, min_size=1))
def test_the_range_is_what_its_rows_would_give_and_nothing_is_not_zero(values: list[Scalar]) -> None:
    present = [Decimal(str(value)) for value in values if value is not None]
    assert fold(LOW, values) == (min(present) if present else None)
    assert fold(HIGH, values) == (max(present) if present else None)
    if not present:
        assert fold(SUM, values) is None


def test_sums_are_folded_to_the_last_digit() -> None:
    assert fold(SUM, [Decimal("12345678901234567890123456789012345.678"), None, Decimal("0.001")]) == Decimal(
        "12345678901234567890123456789012345.679"
    )
    assert fold(SUM, [0.1] * 10) == 1.0
    assert fold(ROWS, [3, 0, 4]) == 7


@given(st.lists(numbers, min_size=1))
def test_what_is_recorded_reads_back_as_it_was(values: list[Scalar]) -> None:
    recorded = [json.loads(json.dumps(to_recorded({SUM: value}))) for value in values]
    assert from_recorded(SUM, recorded) == values


def test_a_value_that_one_partition_lacks_is_not_folded() -> None:
    recorded = [to_recorded({ROWS: 3}), to_recorded({ROWS: ValueError("no")})]
    assert from_recorded(ROWS, recorded) is None
    assert to_recorded({SUM: float("nan"), LOW: float("inf")}) == {}


@pytest.mark.parametrize(
    ("metric", "known"),
    [
        (ROWS, True),
        (SUM, True),
        (Metric(MetricKind.NULLS, ("a",), where="b > 0"), True),
        (Metric(MetricKind.UNTRUE, expression="a > 0"), True),
        (Metric(MetricKind.COUNT_DISTINCT, ("a",)), False),
        (Metric(MetricKind.ORPHANS, ("a",), to_table="t", to_field="a"), False),
        (Metric(MetricKind.DUPLICATES, ("a",)), False),
        (Metric(MetricKind.DUPLICATES, ("a", "Day")), True),
    ],
    ids=str,
)
def test_only_what_follows_from_the_partitions_is_folded(metric: Metric, known: bool) -> None:
    assert folds(metric, "day") == known


def test_different_metrics_have_different_texts() -> None:
    metrics = [
        ROWS,
        Metric(MetricKind.ROWS, where="a > 0"),
        Metric(MetricKind.NULLS, ("a",)),
        Metric(MetricKind.NULLS, ("a",), where="a > 0"),
        Metric(MetricKind.OUTSIDE_VALUES, ("a",), values=("x, y",)),
        Metric(MetricKind.OUTSIDE_VALUES, ("a",), values=("x", "y")),
        Metric(MetricKind.OUTSIDE_RANGE, ("a",), min_value=Decimal(0)),
        Metric(MetricKind.OUTSIDE_RANGE, ("a",), min_value=Decimal(0), inclusive=False),
        Metric(MetricKind.OUTSIDE_RANGE, ("a",), max_value=Decimal(0)),
        Metric(MetricKind.ORPHANS, ("a",), to_table="t", to_field="x"),
        Metric(MetricKind.ORPHANS, ("a",), to_table="t", to_field="y"),
        Metric(MetricKind.UNTRUE, expression="a"),
    ]
    assert len({str(metric) for metric in metrics}) == len(metrics)
