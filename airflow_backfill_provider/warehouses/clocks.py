"""What a partition column shows: how a bound of time, or a value of a list, is written against its type.

The one place that turns an instant into a value of a column. Every engine compares columns with what it gives, so that
selection, staging and deletion mean the same rows, whatever the time zone of a session or a host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Any

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.column_format import FORMATS, ColumnFormat
from airflow_backfill_provider.windows import Grain, Partition, Value, Window, day_start, merge, partition_at
from airflow_backfill_provider.windows.zones import local

Shown = date | datetime | int | str
"""A value of a partition column."""


_FEW = 8
"""Up to how many stretches of days are told by their bounds."""


class ColumnKind(StrEnum):
    """The types a partition column may have, as far as the way to write a value differs."""

    DATE = "date"
    TIMESTAMP = "timestamp"  # without a zone
    TIMESTAMPTZ = "timestamptz"
    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True)
class Reading:
    """What a spec says of a partition column, because its type alone cannot tell."""

    timezone: str = "UTC"
    """The zone of the partitions; a DATE or a format shows its days, months or years."""
    column_timezone: str | None = None
    """The zone whose wall clock the column shows; by default UTC for timestamps, else ``timezone``."""
    column_format: ColumnFormat | None = None
    by_value: bool = False
    """Each value is a partition (grain ``list``)."""

    def clock(self, kind: ColumnKind) -> Clock:
        """The clock of a column of this kind.

        :raises SpecError: kind and reading do not go together; the message says what the spec needs.
        """
        has_format = kind in (ColumnKind.INTEGER, ColumnKind.TEXT)
        if self.by_value:
            if not has_format:
                raise SpecError(f"a column of kind {kind} cannot be cut into list partitions; use an integer or text")
            return Clock(kind)
        if has_format and self.column_format is None:
            raise SpecError(
                f"a column of kind {kind} does not say how it writes time; set column_format to one of "
                f"{', '.join(FORMATS)}, or grain: list when each value is a partition"
            )
        if self.column_format is not None and not has_format:
            raise SpecError(f"column_format is for integer and text columns; a {kind} needs none, so leave it out")
        if kind is ColumnKind.INTEGER and not FORMATS[str(self.column_format)].is_number:
            raise SpecError(
                f"an integer does not hold {self.column_format}; set column_format to yyyymmdd, yyyymm or yyyy"
            )
        if kind is ColumnKind.TIMESTAMPTZ and self.column_timezone is not None:
            raise SpecError("a timestamp with time zone tells instants; leave column_timezone out")
        default = "UTC" if kind in (ColumnKind.TIMESTAMP, ColumnKind.TIMESTAMPTZ) else self.timezone
        return Clock(kind, self.column_timezone or default, self.column_format)


AS_TYPED = Reading()
"""UTC, and a column whose type says the rest."""


@dataclass(frozen=True)
class Clock:
    """How a partition column tells which partition a row is in."""

    kind: ColumnKind
    zone: str = "UTC"
    """The zone whose wall clock or calendar it shows; of no meaning for TIMESTAMPTZ and for values of a list."""
    column_format: ColumnFormat | None = None
    """How an integer or a text writes time; None when each value is a partition."""

    @property
    def unit(self) -> Grain | None:
        """The shortest period it tells apart; None when that is less than an hour."""
        if self.kind is ColumnKind.DATE:
            return Grain.DAY
        return None if self.column_format is None else FORMATS[self.column_format].unit

    def show(self, moment: datetime) -> Shown:
        """The first value that the column shows at this instant or later.

        :raises SpecError: the column cannot tell the instant from the one before it.
        """
        shown = local(moment, self.zone)
        if self.unit is not None:
            if partition_at(moment, self.unit, self.zone).window.start != moment:
                raise SpecError(
                    f"{self} tells one {self.unit} from the next, and {_iso(moment)} is not the start of one: "
                    f"no shorter grain and no other time zone can be cut on it"
                )
            if self.column_format is None:
                return shown.date()
            text = FORMATS[self.column_format].text(shown.date())
            return int(text) if self.kind is ColumnKind.INTEGER else text
        if self.kind is ColumnKind.TIMESTAMPTZ:
            return moment.astimezone(UTC)
        if day_start(shown.date(), self.zone) == moment:
            return datetime.combine(shown.date(), time())
        if shown.fold:
            raise SpecError(
                f"{self} shows the same time before and after {_iso(moment)}, when the clocks go back, so rows cannot be "
                "told apart there: use a longer grain, or a column that shows UTC"
            )
        return shown.replace(tzinfo=None)

    def read(self, value: Value) -> int | str:
        """The value of a list as the column's type has it.

        :raises SpecError: the column is an integer and the value is none.
        """
        if self.kind is not ColumnKind.INTEGER:
            return value.text
        try:
            number = int(value.text)
        except ValueError:
            number = None
        if number is None or str(number) != value.text:
            raise SpecError(f"{value.text!r} is not a value of an integer column; give a number such as '42'")
        return number

    def only_value(self, partition: Partition) -> Shown | None:
        """The one value that every row of the partition has; None when there may be several."""
        match partition.span:
            case Value() as value:
                return self.read(value)
            case Window(start, end):
                if self.unit is None or partition_at(start, self.unit, self.zone).window.end != end:
                    return None
                return self.show(start)

    def days_apart(self, partitions: Sequence[Partition]) -> list[Shown]:
        """The days of a DATE column that are all of the partitions, where many lie apart from each other; else none.

        Listing those is faster than comparing each row with all of their bounds.
        """
        if self.kind is not ColumnKind.DATE or len(merge(partitions)) <= _FEW:
            return []
        days = [self.only_value(partition) for partition in sorted(partitions)]
        return [day for day in days if day is not None] if None not in days else []

    def holds(self, span: Value | Window) -> Callable[[Any], bool]:
        """Whether a value of the column lies in the span; NULL lies in none."""
        match span:
            case Value():
                wanted = self.read(span)
                return lambda value: value is not None and value == wanted
            case Window(start, end):
                low: Any = self.show(start)
                high: Any = self.show(end)
                return lambda value: value is not None and low <= value < high

    def __str__(self) -> str:
        written = f" column that writes {self.column_format}" if self.column_format else " column"
        return f"a {self.kind}{written} in {self.zone}"


UTC_DATE = Clock(ColumnKind.DATE)
"""A DATE that means days of UTC."""
UTC_TIMESTAMP = Clock(ColumnKind.TIMESTAMP)
"""A TIMESTAMP without a zone that means UTC."""


def require_cuttable(clock: Clock, partitions: tuple[Partition, ...]) -> None:
    """Refuse partitions that the column cannot tell apart.

    :raises SpecError: naming the partition and the reason.
    """
    for partition in partitions:
        try:
            clock.holds(partition.span)
        except SpecError as error:
            raise SpecError(f"partition {partition.key}: {error}") from error


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
