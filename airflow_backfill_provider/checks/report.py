"""Many outcomes as one verdict and as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_backfill_provider.checks.outcome import Outcome, Verdict


@dataclass(frozen=True)
class ValidationReport:
    """What validation came to. Holds counts and limits, never rows."""

    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all; with no outcome at all nothing was checked, which is an error."""
        worst_first = (Verdict.ERROR, Verdict.FAIL, Verdict.WARN, Verdict.PASS)
        found = {outcome.verdict for outcome in self.outcomes}
        return next((verdict for verdict in worst_first if verdict in found), Verdict.ERROR)

    @property
    def ok(self) -> bool:
        """Whether the rows may be published."""
        return self.verdict in (Verdict.PASS, Verdict.WARN)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many outcomes there are of each verdict."""
        found = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Every outcome that stops the publish."""
        return tuple(outcome for outcome in self.outcomes if outcome.failed)

    @property
    def warnings(self) -> tuple[Outcome, ...]:
        """Every outcome that would stop the publish at severity ``error``."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is Verdict.WARN)

    @property
    def rejected_keys(self) -> frozenset[str]:
        """The partitions of which at least one check said no."""
        return frozenset(outcome.partition for outcome in self.failures if outcome.partition is not None)

    def summary(self) -> str:
        """One line: ``fail: 2 of 150 partitions rejected; 448 pass, 2 fail (row_diff)``."""
        if not self.outcomes:
            return "error: nothing was checked"
        partitions = {outcome.partition for outcome in self.outcomes if outcome.partition is not None}
        numbers = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        names = ", ".join(dict.fromkeys(outcome.name for outcome in self.failures))
        scope = f"{len(self.rejected_keys)} of {len(partitions)} partitions rejected; " if partitions else ""
        return f"{self.verdict}: {scope}{numbers}{f' ({names})' if names else ''}"

    def lines(self) -> list[str]:
        """One line for every outcome that is not a pass, those that stop the publish first."""
        return [str(outcome) for outcome in (*self.failures, *self.warnings)]

    def reason(self) -> str:
        """What stops the publish, by the name of its partition; without the statements that show it."""
        return "; ".join(str(replace(outcome, sql=None)) for outcome in self.failures)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain JSON values; :meth:`from_json` reads them back."""
        return [outcome.to_json() for outcome in self.outcomes]

    @classmethod
    def from_json(cls, values: Sequence[Mapping[str, Any]]) -> ValidationReport:
        """The report that :meth:`to_json` wrote."""
        return cls(tuple(Outcome.from_json(one) for one in values))
