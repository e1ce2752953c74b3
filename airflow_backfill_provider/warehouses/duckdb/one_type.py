"""Whether the values of a column keep what they are when DuckDB gives them one type, as it does with values of Python."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from airflow_backfill_provider.errors import WarehouseError

_EXACT_INTEGER = 2**53
_EXACT_DIGITS = 15
"""A number of so many digits comes back from a DOUBLE as it was."""
_WIDEST = 38
"""Digits of the widest DECIMAL."""


def require_one_type(name: str, values: Iterable[Any]) -> None:
    """Refuse a column in which numbers of Python would become others: beside a float all are DOUBLE, and what no DECIMAL is
    wide enough for is rounded, or DOUBLE too.

    :raises WarehouseError: naming the column, and a number that would change.
    """
    whole, exact, floating = _numbers(values)
    changed: int | Decimal | None
    if floating:
        changed = next((one for one in whole if abs(one) > _EXACT_INTEGER), None)
        changed = changed or next((one for one in exact if _digits(one) > _EXACT_DIGITS), None)
        if changed is not None:
            raise _changing(
                name,
                f"{changed!r} beside a float",
                "DuckDB makes both DOUBLE, which has no place for all its digits",
                "Return each number as the column's type, and no float such as a default of 0.0 among Decimal or int",
            )
    endless = next((one for one in exact if not one.is_finite()), None)
    if endless is not None and len(exact) + len(whole) > 1:
        raise _changing(
            name, f"{endless!r} beside other numbers", "DuckDB makes all of them FLOAT", "Return None for it"
        )
    before = max(map(_before_point, exact), default=0)
    after = max(map(_after_point, exact), default=0)
    if before + after > _WIDEST:
        raise _changing(
            name,
            f"{max(exact, key=_after_point)!r}",
            f"it and the others need {before} digits before the point and {after} after it together, and DECIMAL has {_WIDEST}",
            "Round them to the digits of the column",
        )


def _numbers(values: Iterable[Any]) -> tuple[list[int], list[Decimal], bool]:
    """The integers, the decimals, and whether there are floating point numbers."""
    whole, exact, floating = [], [], False
    for value in values:
        if isinstance(value, float):
            floating = True
        elif isinstance(value, Decimal):
            exact.append(value)
        elif isinstance(value, int):
            whole.append(value)
    return whole, exact, floating


def _digits(number: Decimal) -> int:
    return len(number.normalize().as_tuple().digits)


def _before_point(number: Decimal) -> int:
    return max(number.adjusted() + 1, 0) if number.is_finite() else 0


def _after_point(number: Decimal) -> int:
    return max(-int(number.as_tuple().exponent), 0) if number.is_finite() else 0


def _changing(name: str, what: str, why: str, way_on: str) -> WarehouseError:
    return WarehouseError(
        f"What the code returned would lose values: {name} has {what}, and {why}. Nothing was kept. {way_on}."
    )
