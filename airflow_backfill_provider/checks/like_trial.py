"""Comparisons with the trial: whether a partition changes by much more than the one that was tried first."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.change import Distance, plain
from airflow_backfill_provider.checks.comparison import value_of
from airflow_backfill_provider.checks.fold import from_recorded
from airflow_backfill_provider.checks.metrics import metrics_of_comparison
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.wording import expected_of_measure, name_of_measure
from airflow_backfill_provider.spec.comparisons import AnyMeasure
from airflow_backfill_provider.spec.metric import Scalar

Recorded = Mapping[str, Any]
_SHOWN = 5


def judge_like_trial(comparison: AnyMeasure, tried: str, recorded: Mapping[str, tuple[Recorded, Recorded]]) -> Outcome:
    """Whether no partition changes by more than so many times what the tried one changed by.

    :param tried: the key of the partition that was tried.
    :param recorded: of each partition, what was measured of the published and of the staged rows.
    """
    answer = Answer(comparison.kind, name_of_measure(comparison), None, comparison.severity)
    expected = expected_of_measure(comparison)
    changes: dict[str, Decimal | None] = {}
    try:
        for key, sides in recorded.items():
            old, new = (_value(comparison, side) for side in sides)
            if old is not None or new is not None:
                changes[key] = None if old is None or new is None else Distance.between(old, new).change
    except ValueError as error:
        return answer.error(expected, "no answer", str(error))
    of_trial = changes.get(tried)
    if of_trial is None:
        return answer.error(
            expected, f"{tried} has no change", "a side of the tried partition has no value to compare with"
        )
    limit = comparison.times * abs(of_trial)
    beyond = {key: change for key, change in changes.items() if change is None or abs(change) > limit}
    named = [f"{key} by {'an unknown amount' if one is None else _signed(one)}" for key, one in beyond.items()]
    shown = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if named[_SHOWN:] else "")
    found = f"{len(beyond)} of {len(changes)} partitions change by more"
    detail = f"{tried} changed by {_signed(of_trial)}, and {shown}" if beyond else ""
    return answer.of(not beyond, expected, found, detail)


def _value(comparison: AnyMeasure, recorded: Recorded) -> Scalar:
    values: dict[Any, Any] = {}
    for metric in metrics_of_comparison(comparison):
        found = from_recorded(metric, [recorded])
        if found is None:
            raise ValueError(f"{metric} was not measured of every partition")
        (values[metric],) = found
    return value_of(comparison, values)


def _signed(change: Decimal) -> str:
    return f"{'+' if change > 0 else ''}{plain(change)}"
