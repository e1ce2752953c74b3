"""Partitions that a bug did not affect: the new rule must leave them as they are published."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from airflow_backfill_provider.spec.checks import Frozen, Number
from airflow_backfill_provider.spec.names import Identifier


class ControlPeriodSpec(Frozen):
    """Partitions that are recomputed, compared and thrown away; they are never published."""

    partitions: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=64)], ...], Field(min_length=1)]
    """Their keys; none may lie in the range of a request."""
    tolerance: dict[Identifier, Annotated[Number, Field(ge=0)]] = Field(default_factory=dict)
    """By column of numbers, how far a value may be from the published one; every other column must be equal."""

    @field_validator("partitions")
    @classmethod
    def _distinct(cls, partitions: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(partitions)) != len(partitions):
            raise ValueError("a control partition is named twice")
        return partitions
