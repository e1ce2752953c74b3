"""How integer and text columns write the day, month or year of a row; text compares as time does in all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal

from airflow_backfill_provider.windows import Grain

ColumnFormat = Literal["yyyymmdd", "yyyymm", "yyyy", "iso_date", "iso_month"]


@dataclass(frozen=True)
class Format:
    """One way to write a period."""

    unit: Grain
    text: Callable[[date], str]
    is_number: bool
    """Whether an integer column can hold it."""


FORMATS: dict[str, Format] = {
    "yyyymmdd": Format(Grain.DAY, lambda day: day.isoformat().replace("-", ""), is_number=True),
    "yyyymm": Format(Grain.MONTH, lambda day: day.isoformat()[:7].replace("-", ""), is_number=True),
    "yyyy": Format(Grain.YEAR, lambda day: day.isoformat()[:4], is_number=True),
    "iso_date": Format(Grain.DAY, lambda day: day.isoformat(), is_number=False),
    "iso_month": Format(Grain.MONTH, lambda day: day.isoformat()[:7], is_number=False),
}
"""Every format by its name: ``20240229``, ``202402``, ``2024``, ``2024-02-29``, ``2024-02``."""
