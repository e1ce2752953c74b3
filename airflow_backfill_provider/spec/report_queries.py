"""The team's own queries, whose results a publish changes: asked before it, of the table as it is and as it would be."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from airflow_backfill_provider.spec.checks import Frozen, Severity
from airflow_backfill_provider.spec.comparisons import Change


class ReportQuery(Frozen):
    """One number that people look at, and by how much the backfill is to change it."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
    """As people call the number; the report's first sentence has it."""
    sql: Annotated[str, Field(min_length=1)]
    """One SELECT of one value that reads the target by its full name."""
    change_between: Change
    """How far the number may move, signed: two numbers, or two percentages of the old one."""
    severity: Severity = "error"

    @model_validator(mode="before")
    @classmethod
    def _parse_change(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("change_between"), list | tuple):
            return data | {"change_between": Change.parse(data["change_between"])}
        return data
