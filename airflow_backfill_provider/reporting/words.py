"""Numbers, times and names as the page writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Context, Decimal

from airflow_backfill_provider.checks.change import plain
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.windows import Window

NOTHING = "–"
_DIGITS = 9


def number(value: int | Decimal | None) -> str:
    """``1,234.5``, to nine digits; a dash when there is none. The tables hold every digit."""
    if value is None:
        return NOTHING
    if isinstance(value, Decimal) and len(value.as_tuple().digits) > _DIGITS and value != value.to_integral_value():
        value = Context(prec=_DIGITS).plus(value)
    text = plain(Decimal(value))
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}".replace("-", "−") + point + rest if whole not in ("-0", "") else text.replace("-", "−")


def change(value: int | Decimal | None) -> str:
    """The same with its sign: ``+1,234``, ``−0.5``, ``0``."""
    return f"+{number(value)}" if value is not None and value > 0 else number(value)


def counted(count: int, noun: str, many: str = "") -> str:
    """``1 row``, ``1,234 rows``."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def moment(at: datetime | None) -> str:
    """``2024-06-01 12:00 UTC``."""
    return NOTHING if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def range_of(plan: Plan) -> str:
    """``2024-03-01 to 2024-03-10``, or the values."""
    first, last = plan.keys[0], plan.keys[-1]
    if first == last:
        return first
    if all(isinstance(partition.span, Window) for partition in plan.partitions):
        return f"{first} to {last}"
    return (
        f"{listed(plan.keys)}" if len(plan.keys) <= 4 else f"{', '.join(plan.keys[:3])} and {len(plan.keys) - 3:,} more"
    )
