"""The answer of one check about one partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from airflow_backfill_provider.spec.checks import Severity
from airflow_backfill_provider.spec.metric import Metric


class Verdict(StrEnum):
    """``error`` is not a ``fail``: the question could not be answered. Both stop the publish."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"


@dataclass(frozen=True)
class Outcome:
    """One check's answer, with what was expected and what was found, ready to be shown."""

    kind: str
    name: str
    """What people call it: ``not_null(order_id)``."""
    partition: str | None
    """The partition's key; ``None`` for the range as a whole."""
    verdict: Verdict
    severity: Severity
    expected: str
    actual: str
    detail: str = ""
    sql: str | None = None
    """One statement that a person can run to see it."""
    metric: Metric | None = None
    """The metric of the staged rows it rests on; not part of the evidence."""

    @property
    def failed(self) -> bool:
        """Whether it stops the publish."""
        return self.verdict in (Verdict.FAIL, Verdict.ERROR)

    def with_sql(self, sql: str) -> Outcome:
        """The same outcome with a statement that shows it."""
        return replace(self, sql=sql)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_json` reads them back."""
        values = {name: getattr(self, name) for name in _RECORDED}
        return values | {"verdict": str(self.verdict)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The outcome that :meth:`to_json` wrote."""
        return cls(**{**values, "verdict": Verdict(values["verdict"])})

    @classmethod
    def of_range(cls, kind: str, name: str, count: int, examples: Sequence[str] = ()) -> Outcome:
        """The verdict about something of which the whole range must hold none."""
        return cls(
            kind=kind,
            name=name,
            partition=None,
            verdict=Verdict.PASS if count == 0 else Verdict.FAIL,
            severity="error",
            expected="0",
            actual=str(count),
            detail=f"for example {', '.join(examples)}" if count and examples else "",
        )

    def __str__(self) -> str:
        where = self.partition or "whole range"
        parts = [f"{where}: {self.name}: {self.verdict}: expected {self.expected}, found {self.actual}"]
        parts += [self.detail] if self.detail else []
        parts += [f"SQL: {self.sql}"] if self.sql else []
        return "; ".join(parts)


_RECORDED = tuple(field.name for field in fields(Outcome) if field.name != "metric")
