"""Tables as CSV that a spreadsheet opens without running anything in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from airflow_backfill_provider.checks.change import plain

Cell = str | int | Decimal | datetime | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True)
class Table:
    """One file of rows; an empty cell is a value that there is not."""

    header: Sequence[str]
    rows: Iterable[Sequence[Cell]]

    def csv(self) -> bytes:
        """UTF-8 with a header line; numbers exact and without separators, times in ISO 8601, UTC."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([_written(name) for name in self.header])
        writer.writerows([_written(cell) for cell in row] for row in self.rows)
        return text.getvalue().encode()


def _written(cell: Cell) -> str | int:
    match cell:
        case None:
            return ""
        case Decimal():
            return plain(cell)
        case datetime():
            return f"{cell:%Y-%m-%dT%H:%M:%SZ}"
        case str() if cell.startswith(_FORMULA):
            return f"'{cell}"  # a spreadsheet would run it
        case _:
            return cell
