"""How far new is from old: exact for integers and decimals, tolerant of rounding for floating point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

from airflow_backfill_provider.spec.comparisons import Change
from airflow_backfill_provider.spec.metric import Scalar

# The default context rounds to 28 digits; a DECIMAL(38, 10) sum has more.
_EXACT = Context(prec=200)
_SHOWN_DIGITS = 80
_FLOATING = Context(prec=9)

FLOAT_TOLERANCE = Decimal("1e-9")
"""An engine adds floating point numbers in no fixed order, so equal rows may give sums that differ in the last
digits. Sums of which one is a float are told apart only beyond this fraction of the larger of the two. Sums of
large numbers that cancel out are not covered: store such a column as DECIMAL."""


@dataclass(frozen=True)
class Distance:
    """The signed change from ``old`` to ``new``, and how much of it may be rounding."""

    old: Decimal
    new: Decimal
    rounding: Decimal = Decimal(0)
    tolerance: Decimal = Decimal(0)
    """What the spec lets a bound be overstepped by."""

    @classmethod
    def between(
        cls, old: Scalar, new: Scalar, abs_tol: Decimal | None = None, rel_tol: Decimal | None = None
    ) -> Distance:
        """:raises ValueError: a value is not a finite number."""
        before, after = _number(old), _number(new)
        with localcontext(_EXACT):
            floating = isinstance(old, float) or isinstance(new, float)
            rounding = FLOAT_TOLERANCE * max(abs(before), abs(after)) if floating else Decimal(0)
            tolerance = max(abs_tol or Decimal(0), (rel_tol or Decimal(0)) * abs(before))
        return cls(before, after, rounding, tolerance)

    @property
    def change(self) -> Decimal:
        """``new - old``; 0 when the two differ by no more than rounding."""
        with localcontext(_EXACT):
            change = self.new - self.old
            return Decimal(0) if abs(change) <= self.rounding else change

    def within(self, allowed: Change) -> bool:
        """Whether the change lies in the bounds. A percentage is of the size of the old value, which is not 0."""
        if not allowed.percent:
            return self._lies_in(allowed.low, allowed.high)
        with localcontext(_EXACT):
            # Multiplied out, since a quotient would be rounded.
            return self._lies_in(allowed.low * abs(self.old) / 100, allowed.high * abs(self.old) / 100)

    def at_most(self, limit: Decimal) -> bool:
        """Whether old and new differ by no more than ``limit``, in either direction."""
        return self._lies_in(-limit, limit)

    def _lies_in(self, low: Decimal, high: Decimal) -> bool:
        with localcontext(_EXACT):
            slack = max(self.rounding, self.tolerance)
            return low - slack <= self.change <= high + slack

    def __str__(self) -> str:
        with localcontext(_EXACT):
            change = self.change
            percent = f" ({round(change * 100 / abs(self.old), 2):+f}% of the old value)" if self.old else ""
            new, old, moved = map(self._shown, (self.new, self.old, change))
            return f"{new}, from {old}: {'+' if change > 0 else ''}{moved}{percent}"

    def _shown(self, number: Decimal) -> str:
        """Of floating point numbers the digits that are told apart, see :data:`FLOAT_TOLERANCE`; of others every digit."""
        return plain(_FLOATING.plus(number) if self.rounding else number)


def quotient(total: Scalar | Exception, rows: int) -> int | float | Decimal | None:
    """The total by the rows; ``None`` when there is no total or no row, since a quotient of nothing is not 0.

    :raises ValueError: the total is not a number; of one that is not finite, NaN or infinity, neither is the quotient.
    """
    if total is None or isinstance(total, Exception) or rows == 0:
        return None
    if isinstance(total, float | Decimal) and not math.isfinite(total):
        return total
    number = _number(total)
    with localcontext(_EXACT):
        return total / rows if isinstance(total, float) else number / rows


def is_same_beyond_numbers(old: Scalar, new: Scalar) -> bool:
    """Whether both are the same, and not finite: NaN, or infinity of one sign. NaN is NaN, as the engines have it."""
    if not all(isinstance(value, float | Decimal) and not math.isfinite(value) for value in (old, new)):
        return False
    return old == new or (old != old and new != new)


def plain(number: Decimal) -> str:
    """The number without an exponent and without trailing zeros."""
    if len(number.as_tuple().digits) > _SHOWN_DIGITS:
        number = Context(prec=15).plus(number)  # a quotient that goes on for ever
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(value: Scalar) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is not a number")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{number} is not a finite number")
    return number
