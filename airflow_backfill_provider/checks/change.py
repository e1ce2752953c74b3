"""How far new is from old: exact for integers and decimals, tolerant of rounding for floating point."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

from airflow_backfill_provider.spec.checks import Change
from airflow_backfill_provider.spec.metric import Scalar

# The default context rounds to 28 digits; a DECIMAL(38, 10) sum has more.
_EXACT = Context(prec=200)

FLOAT_TOLERANCE = Decimal("1e-9")
"""An engine adds floating point numbers in no fixed order, so equal rows may give sums that differ in the last
digits. Sums of which one is a float are told apart only beyond this fraction of the larger of the two. Sums of
large numbers that cancel out are not covered: store such a column as DECIMAL."""


@dataclass(frozen=True)
class Distance:
    """The signed change from ``old`` to ``new``, and how much of it may be rounding."""

    old: Decimal
    new: Decimal
    slack: Decimal = Decimal(0)

    @classmethod
    def between(cls, old: Scalar, new: Scalar) -> Distance:
        """:raises ValueError: a value is not a finite number."""
        before, after = _number(old), _number(new)
        with localcontext(_EXACT):
            floating = isinstance(old, float) or isinstance(new, float)
            slack = FLOAT_TOLERANCE * max(abs(before), abs(after)) if floating else Decimal(0)
        return cls(before, after, slack)

    @property
    def change(self) -> Decimal:
        """``new - old``; 0 when the two differ by no more than rounding."""
        with localcontext(_EXACT):
            change = self.new - self.old
            return Decimal(0) if abs(change) <= self.slack else change

    def within(self, allowed: Change) -> bool:
        """Whether the change lies in the bounds; of an old value of 0 there is no percentage, so only 0 will do."""
        if not allowed.percent:
            return self._lies_in(allowed.low, allowed.high)
        if self.old == 0:
            return self.change == 0
        with localcontext(_EXACT):
            # Multiplied out, since a quotient would be rounded.
            return self._lies_in(allowed.low * abs(self.old) / 100, allowed.high * abs(self.old) / 100)

    def at_most(self, limit: Decimal) -> bool:
        """Whether old and new differ by no more than ``limit``, in either direction."""
        return self._lies_in(-limit, limit)

    def _lies_in(self, low: Decimal, high: Decimal) -> bool:
        with localcontext(_EXACT):
            return low - self.slack <= self.change <= high + self.slack

    def __str__(self) -> str:
        with localcontext(_EXACT):
            change = self.change
            percent = f" ({round(change * 100 / abs(self.old), 2):+f}%)" if self.old else ""
            return f"{plain(self.new)}, from {plain(self.old)}: {'+' if change > 0 else ''}{plain(change)}{percent}"


def plain(number: Decimal) -> str:
    """The number without an exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(value: Scalar) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is not a number")
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{number} is not a finite number")
    return number
