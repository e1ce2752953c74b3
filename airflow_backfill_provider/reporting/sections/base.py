"""One part of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_backfill_provider.reporting.tables import Table


@dataclass(frozen=True)
class Section:
    """What one part shows, and the files that hold all of it."""

    name: str
    """Its template's."""
    title: str
    content: Mapping[str, Any]
    """What its template needs; bounded, whatever the size of the plan."""
    files: Mapping[str, Table] = field(default_factory=dict)
    """By file name."""
