"""Builds the outcomes of one question about one partition, or about the range."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.spec.checks import Severity
from airflow_backfill_provider.spec.metric import Metric


@dataclass(frozen=True)
class Answer:
    """One question; each method answers it."""

    kind: str
    name: str
    key: str | None
    severity: Severity
    metric: Metric | None = None
    sql: str | None = None

    def make(self, verdict: Verdict, expected: str, actual: str, detail: str = "") -> Outcome:
        """The outcome with this verdict."""
        return Outcome(
            self.kind, self.name, self.key, verdict, self.severity, expected, actual, detail, self.sql, self.metric
        )

    def of(self, holds: bool, expected: str, actual: str, detail: str = "") -> Outcome:
        """A pass when it holds, and else what the severity makes of it."""
        return self.passed(expected, actual, detail) if holds else self.fail(expected, actual, detail)

    def passed(self, expected: str, actual: str, detail: str = "") -> Outcome:
        """It holds."""
        return self.make(Verdict.PASS, expected, actual, detail)

    def fail(self, expected: str, actual: str, detail: str = "") -> Outcome:
        """It does not hold."""
        return self.make(Verdict.WARN if self.severity == "warn" else Verdict.FAIL, expected, actual, detail)

    def warned(self, expected: str, actual: str, detail: str) -> Outcome:
        """Neither a pass nor a failure: people are to know of it."""
        return self.make(Verdict.WARN, expected, actual, detail)

    def error(self, expected: str, actual: str, detail: str) -> Outcome:
        """The question could not be answered, which no severity softens."""
        return self.make(Verdict.ERROR, expected, actual, detail)

    def raised(self, expected: str, error: Exception) -> Outcome:
        """Asking it failed; the engine's message is kept."""
        return self.error(expected, "the query failed", str(error) or type(error).__name__)

    def unmeasured(self, expected: str) -> Outcome:
        """A value it rests on is not there."""
        return self.error(expected, "not measured", "the value is missing")
